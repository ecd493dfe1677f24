// Why not …? Another strategy against the plan: refused by which rule, short of what, or slower by how much and where.

import { card, el, fill, gib, percent, right, seconds, table, words } from "/page/base.js";
import { layoutText, verdict } from "/page/answer.js";
import { ask } from "/page/client.js";
import { nameOf } from "/page/palette.js";
import { problemNote } from "/page/problems.js";

/** The card; `source` gives the plan as the service takes it. */
export function whyNotCard(source, strategy) {
  const out = el("div", { class: "stack", "aria-live": "polite" });
  const input = el("input", { type: "text", id: "against", placeholder: "tp=8, pp=4", spellcheck: "false", autocomplete: "off" });
  const run = async () => {
    const text = input.value.replaceAll(" ", "");
    if (!text) { fill(out, el("p", { class: "soft" }, "Name what should be otherwise, such as tp=8.")); return; }
    await against(source, text, out);
  };
  const form = el("form", { class: "row low", onsubmit: (event) => { event.preventDefault(); run(); } }, el("label", { style: { flex: "1 1 220px" } }, "Why not …", input), el("button", { type: "submit", id: "why-not" }, "Ask"));
  const chips = el("div", { class: "chips" }, ideas(strategy).map((text) => el("button", { type: "button", onclick: () => { input.value = text; run(); } }, `${text}?`)));
  const help = el("div", {}, el("button", { type: "button", id: "explain", onclick: () => explain(source, out) }, "What binds this plan, and what would help?"));
  const about = "Ask for any other choice. What you do not name is searched, so the answer is about the best layout with it, and the bound says that no other does better.";
  return card("whynot", "Why not …?", about, el("div", { class: "stack" }, form, chips, help, out));
}

/** Choices that people wonder about, for this layout. */
export function ideas(s) {
  const found = [s.tp > 1 ? "tp=1" : "tp=8", s.tp > 1 ? `tp=${s.tp * 2}` : "tp=2", s.pp > 1 ? "pp=1" : "pp=2", s.cp > 1 ? "cp=1" : null, s.vpp > 1 ? "vpp=1" : null, s.recompute === "none" ? "recompute=full" : "recompute=none", s.mbs === 1 ? "mbs=2" : "mbs=1", s.zero === 0 ? "zero=1" : s.zero < 3 ? "zero=3" : "zero=2"];
  return found.filter(Boolean);
}

async function against(source, text, out) {
  const began = Date.now();
  fill(out, el("p", { role: "status" }, el("span", { class: "busy" }), ` Searching the best layout with ${text} …`));
  try {
    const answer = await ask("POST", "/v1/explanations", { ...source(), against: text, max_seconds: 15 });
    fill(out, contrast(answer.against), el("p", { class: "small soft" }, `Answered in ${seconds((Date.now() - began) / 1000)}.`));
  } catch (problem) { fill(out, problemNote(problem, () => against(source, text, out))); }
}

function contrast(found) {
  const title = { slower: "Slower", faster: "Faster", does_not_fit: "Does not fit", illegal: "The engine would refuse it", same: "The same", unknown: "Not known yet" }[found.verdict] ?? words(found.verdict);
  const tone = { slower: "warn", faster: "good", same: "good", illegal: "bad", does_not_fit: "bad" }[found.verdict] ?? "";
  const note = el("div", { class: `note ${tone}`, role: "status", "data-verdict": found.verdict }, el("strong", {}, title), el("p", {}, `${found.sentence.charAt(0).toUpperCase()}${found.sentence.slice(1)}.`));
  const rules = found.violations.map((each) => el("li", {}, el("strong", {}, each.rule), `: ${each.detail}`, each.nearest.length ? ` Nearest: ${each.nearest.join("; ")}.` : "", each.source ? el("span", { class: "soft small" }, ` (${each.source})`) : null));
  return el("div", { class: "stack" }, note, rules.length ? el("ul", {}, rules) : null, found.difference ? difference(found) : null);
}

function difference(found) {
  const moved = found.difference, rows = Object.entries(moved.breakdown_s).filter(([, value]) => Math.abs(value) > 1e-4 * Math.abs(found.prediction.step_s)).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const knobs = Object.entries(moved.knobs).filter(([key]) => !["stages", "dp_shard"].includes(key)).map(([key, [ours, theirs]]) => [key, String(ours), String(theirs)]);
  const memory = Object.entries(moved.memory.worst_by_cause).filter(([, value]) => Math.abs(value) > 2 ** 26).map(([cause, value]) => [words(cause), right(`${value >= 0 ? "+" : "−"}${gib(Math.abs(value))}`, value)]);
  const sign = (value) => `${value >= 0 ? "+" : "−"}${seconds(Math.abs(value))}`;
  return el(
    "div", { class: "split-row" }, table("Seconds more or less", ["Cause", { text: "Seconds", right: true }], [...rows.map(([cause, value]) => [nameOf(cause), right(sign(value), value)]), [el("strong", {}, "step"), right(sign(moved.step_s), moved.step_s)]]),
    el("div", { class: "stack" }, table("Knobs", ["Knob", "Plan", "Asked"], knobs), memory.length ? table("Memory of the fullest stage", ["Cause", { text: "Bytes", right: true }], memory) : null),
  );
}

async function explain(source, out) {
  fill(out, el("p", { role: "status" }, el("span", { class: "busy" }), " Trying every axis and better hardware, up to 20 s …"));
  try { fill(out, explained(await ask("POST", "/v1/explanations", { ...source(), max_seconds: 20 }))); } catch (problem) { fill(out, problemNote(problem, () => explain(source, out))); }
}

function explained(found) {
  const axes = found.axes.flatMap((axis) => axis.alternatives.map((each) => [el("strong", {}, axis.axis), String(each.value), each.how, each.sentence]));
  const hardware = found.sensitivity.map((each) => [each.change, right(seconds(each.step_s), each.step_s), right(percent(each.gain ?? 0), each.gain), each.strategy ? layoutText(each.strategy) : each.why]);
  const stages = found.stages.map((each) => [`stage ${each.stage}`, words(each.binding), right(seconds(each.busy_s), each.busy_s), right(seconds(each.slack_s), each.slack_s), each.memory.binds ? verdict("at_risk") : "room", ]);
  return el(
    "div", { class: "stack" }, el("div", { class: "note" }, el("p", {}, `${found.summary}.`)),
    el("h3", {}, "What each choice costs or saves"), table("Axes", ["Axis", "Instead", "How", "What happens"], axes),
    el("h3", {}, "What better hardware would buy"), table("Hardware", ["Change", { text: "Step", right: true }, { text: "Gain", right: true }, "With"], hardware),
    el("h3", {}, "What binds each stage"), table("Stages", ["Stage", "Bound by", { text: "Busy", right: true }, { text: "Slack", right: true }, "Memory"], stages),
  );
}
