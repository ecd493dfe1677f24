// Why not …? Another strategy against the plan: refused by which rule, short of what, or slower by how much and where.

import { card, el, fill, seconds } from "/page/base.js";
import { ask } from "/page/client.js";
import { contrast, explained } from "/page/explained.js";
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

async function explain(source, out) {
  fill(out, el("p", { role: "status" }, el("span", { class: "busy" }), " Trying every axis and better hardware, up to 20 s …"));
  try { fill(out, explained(await ask("POST", "/v1/explanations", { ...source(), max_seconds: 20 }))); } catch (problem) { fill(out, problemNote(problem, () => explain(source, out))); }
}
