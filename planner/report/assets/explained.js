// Why this plan, why not another, and two plans side by side: what `planner explain` and `planner compare` found out.

import { card, el, gib, numbers, percent, right, seconds, signed, table, words } from "./base.js";
import { layoutText, verdict } from "./answer.js";
import { axisStyle, chart, keyed, tooltip } from "./charts.js";
import { colour, decal, nameOf } from "./palette.js";

const PAINT = { compute: "compute", memory_bandwidth: "pp_communication", latency_and_fixed: "other" };
const LINKS = ["tp_communication", "dp_communication", "ep_communication", "cp_communication"];
const FOLLOWING = ["stages", "dp_shard"];
const NAMED = 3, SMALL_SHARE = 0.002, SMALL_BYTES = 2 ** 26;

/** `+1.2 s`, `−40 ms`. */
const more = (value) => `${value >= 0 ? "+" : "−"}${seconds(Math.abs(value))}`;
const moreBytes = (value) => `${value >= 0 ? "+" : "−"}${gib(Math.abs(value))}`;

/** The card of a report; the page shows `explained` where it was asked for. */
export function explanationCard(found) {
  return card("why", "Why this plan", "What its stages wait for, what every other choice would cost or save, and what better hardware would buy.", explained(found));
}

export function explained(found) {
  return el(
    "div", { class: "stack" }, el("div", { class: "note" }, el("p", {}, sentence(found.summary))),
    el("h3", {}, "What binds each stage"), bindings(found.stages), el("h3", {}, "What each choice costs or saves"),
    el("p", { class: "small soft" }, "Each line is the best layout that has the other value: the rest is searched again (or, where time ran out, priced as it is)."), choices(found),
    el("h3", {}, "What better hardware would buy"), hardware(found.sensitivity),
  );
}

/** Seconds of every stage by the resource that they follow, found by making each 10 % faster; what is left is waiting. */
function bindings(stages) {
  const keys = [...new Set(stages.flatMap((each) => Object.keys(each.shares)))].filter((key) => stages.some((each) => each.shares[key] >= 0.001));
  const links = keys.filter((key) => key.startsWith("link:"));
  const paint = (key) => PAINT[key] ?? LINKS[links.indexOf(key) % LINKS.length];
  const parts = [...keys.map((key) => ({ name: resource(key), paint: paint(key), value: (each) => each.shares[key] * each.busy_s })), { name: "could work longer", paint: "pp_bubble", value: (each) => each.slack_s }];
  const names = stages.map((each) => `stage ${each.stage}`), keysOf = parts.map((part) => part.name);
  const longest = Math.max(...stages.map((each) => each.busy_s + each.slack_s));
  const label = `Seconds of ${stages.length} stages by the resource that they follow; ${stages.filter((each) => each.memory.binds).length} have no room for one more layer`;
  const option = (width) => ({
    grid: { left: 8, right: 20, top: keyed(keysOf, width, 34).top, bottom: 20, containLabel: true }, legend: keyed(keysOf, width, 34).legend,
    tooltip: tooltip((at) => `${at.name}, ${at.seriesName}\n${seconds(at.value)}`),
    xAxis: { type: "value", max: Number((longest * 1.005).toPrecision(3)), name: "seconds of a step", nameLocation: "middle", nameGap: 24, ...axisStyle({ axisLabel: { showMaxLabel: false } }) },
    yAxis: { type: "category", inverse: true, data: names, ...axisStyle({ grid: false }) },
    series: parts.map((part, index) => ({ name: part.name, type: "bar", stack: "s", barMaxWidth: 22, barCategoryGap: "22%", data: stages.map(part.value), itemStyle: { color: colour(part.paint), decal: decal(index) } })),
  });
  const head = ["Stage", ...keys.map((key) => ({ text: resource(key), right: true })), { text: "works", right: true }, { text: "could work longer", right: true }, { text: "free memory", right: true }, { text: "one more layer takes", right: true }];
  const rows = stages.map((each) => [`stage ${each.stage}`, ...keys.map((key) => right(percent(each.shares[key] ?? 0), each.shares[key])), right(seconds(each.busy_s), each.busy_s), right(seconds(each.slack_s), each.slack_s), right(gib(each.memory.room_bytes), each.memory.room_bytes), right(gib(each.memory.block_bytes), each.memory.block_bytes)]);
  const full = stages.filter((each) => each.memory.binds).map((each) => each.stage);
  const memory = full.length ? `No room for one more layer on stage${full.length > 1 ? "s" : ""} ${listed(full)}: memory binds there, too.` : "Every stage has room for one more layer: time binds, not memory.";
  return [chart(label, Math.min(Math.max(100 + stages.length * 26, 160), 640), option, null, keysOf), el("p", { class: "small soft" }, memory), numbers("What binds each stage", head, rows)];
}

function resource(key) {
  return key.startsWith("link:") ? `${key.slice(5)} links` : { latency_and_fixed: "launches, latency, fixed work" }[key] ?? words(key);
}

function listed(stages) {
  return stages.length > 8 ? `${stages.slice(0, 8).join(", ")} and ${stages.length - 8} more` : stages.join(", ");
}

function choices(found) {
  const all = found.axes.flatMap((axis) => axis.alternatives.map((each) => ({ ...each, axis: axis.axis, ours: axis.value })));
  const scale = Math.max(...all.map((each) => Math.abs(each.difference?.step_s ?? 0)), 1e-12), base = found.plan.step_s;
  const rows = all.map((each) => {
    const choice = [el("strong", {}, each.axis), ` ${each.ours} → ${each.value}`];
    if (!each.difference) return [el("span", {}, choice), right("–"), "", el("span", { class: "prose soft" }, each.sentence), right(""), each.how];
    const share = each.difference.step_s / base;
    return [el("span", {}, choice), right(seconds(each.step_s), each.step_s), slower(share, each.difference.step_s / scale), el("span", { class: "prose" }, causes(each.difference.breakdown_s, base), each.verdict === "fits" ? null : [" ", verdict(each.verdict)]), right(moreBytes(each.difference.memory.worst_bytes), each.difference.memory.worst_bytes), each.how];
  });
  return table("What each choice costs or saves", ["Choice", { text: "Step", right: true }, "Slower or faster", "Where", { text: "Fullest stage", right: true }, "How"], rows, { class: "whole" });
}

/** A share in words and as a bar: red to the right is slower, green is faster. */
function slower(share, length) {
  const kind = share > 0.0005 ? "worse" : share < -0.0005 ? "better" : "";
  return el("div", { class: "cell-bar" }, el("span", {}, signed(share)), el("i", { class: kind, style: { width: `${Math.round(100 * Math.min(Math.abs(length), 1))}%` } }));
}

function gained(share, length) {
  return el("div", { class: "cell-bar" }, el("span", {}, percent(share)), el("i", { class: "better", style: { width: `${Math.round(100 * Math.min(Math.abs(length), 1))}%` } }));
}

/** The causes that moved most. */
function causes(breakdown, base) {
  const moved = Object.entries(breakdown).filter(([, each]) => Math.abs(each) > SMALL_SHARE * base).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, NAMED);
  return moved.map(([cause, each]) => `${more(each)} ${nameOf(cause)}`).join(", ") || `nothing by more than ${percent(SMALL_SHARE)} of the step`;
}

function hardware(changes) {
  const scale = Math.max(...changes.map((each) => Math.abs(each.gain ?? 0)), 1e-12);
  const rows = changes.map((each) => [each.change, right(seconds(each.step_s), each.step_s), each.gain === null || each.gain === undefined ? "" : gained(each.gain, each.gain / scale), el("span", { class: "prose" }, each.strategy ? layoutText(each.strategy) : each.why || "the same layout"), each.how]);
  return table("What better hardware would buy", ["Change", { text: "Step", right: true }, "Faster by", "With", "How"], rows, { class: "whole" });
}

const VERDICTS = { slower: ["Slower", "warn"], faster: ["Faster", "good"], same: ["The same", "good"], does_not_fit: ["Does not fit", "bad"], illegal: ["The engine would refuse it", "bad"], unknown: ["Not known yet", ""] };

/** The card of a report about one other strategy. */
export function contrastCard(found) {
  return card("why", `Why not ${found.asked}?`, "What is not named was searched, so the answer is about the best layout that has it.", contrast(found));
}

/** Another strategy against the plan: refused by which rule, short of what, or slower by how much and where. */
export function contrast(found) {
  const [title, tone] = VERDICTS[found.verdict] ?? [words(found.verdict), ""];
  const note = el("div", { class: `note ${tone}`, role: "status", "data-verdict": found.verdict }, el("strong", {}, title), el("p", {}, sentence(found.sentence)));
  const rules = found.violations.map((each) => el("li", {}, el("strong", {}, each.rule), `: ${each.detail}`, each.nearest.length ? ` Nearest: ${each.nearest.join("; ")}.` : "", each.source ? el("span", { class: "soft small" }, ` (${each.source})`) : null));
  return el("div", { class: "stack" }, note, rules.length ? el("ul", {}, rules) : null, found.difference ? difference(found.difference, found.prediction.step_s, ["Plan", "Asked"]) : null);
}

/** The card of a report of two plans. */
export function comparisonCard(found, names) {
  const asked = Object.entries(found.question).map(([key, [ours, theirs]]) => [key, String(ours), String(theirs)]);
  return card(
    "why", "Two plans side by side", `First: ${names[0]}. Second: ${names[1]}. Differences are the second less the first.`,
    el("div", { class: "stack" }, el("div", { class: "note" }, el("p", {}, sentence(found.sentence))), asked.length ? table("What else than the layout differs", ["The question", "First", "Second"], asked) : null, difference(found.difference, found.second.step_s, ["First", "Second"])),
  );
}

function difference(moved, step, names) {
  const rows = Object.entries(moved.breakdown_s).filter(([, each]) => Math.abs(each) > 1e-4 * Math.abs(step)).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const scale = Math.max(...rows.map(([, each]) => Math.abs(each)), 1e-12);
  const knobs = Object.entries(moved.knobs).filter(([key]) => !FOLLOWING.includes(key)).map(([key, [ours, theirs]]) => [key, String(ours), String(theirs)]);
  const memory = Object.entries(moved.memory.worst_by_cause).filter(([, each]) => Math.abs(each) > SMALL_BYTES).map(([cause, each]) => [words(cause), right(moreBytes(each), each)]);
  const line = (name, each, length) => [name, right(more(each), each), el("div", { class: "cell-bar alone" }, el("i", { class: each > 0 ? "worse" : "better", style: { width: `${Math.round(100 * Math.min(Math.abs(length), 1))}%` } }))];
  return el(
    "div", { class: "split-row" },
    table("Seconds more or less", ["Cause", { text: "Seconds", right: true }, ""], [...rows.map(([cause, each]) => line(nameOf(cause), each, each / scale)), [el("strong", {}, "step"), right(more(moved.step_s), moved.step_s), ""]]),
    el("div", { class: "stack" }, table("Knobs", ["Knob", ...names], knobs), memory.length ? table("Memory of the fullest stage", ["Fullest stage", { text: "Bytes", right: true }], memory) : null),
  );
}

function sentence(text) {
  return text ? `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}
