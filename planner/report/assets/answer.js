// The answer in one look: what was asked, the layout, its figures, and how sure the planner is.

import { billions, card, el, gib, numbers, percent, right, seconds, signed, table, three, whole, words } from "./base.js";
import { colourVariable } from "./palette.js";

const PILLS = [
  ["tp", "TP", "tensor parallel"], ["cp", "CP", "context parallel"], ["ep", "EP", "expert parallel"],
  ["pp", "PP", "pipeline stages"], ["vpp", "×", "chunks a stage"], ["dp", "DP", "data parallel"],
];

/** The card with the plan's layout and figures. */
export function answerCard(view, result, title = "The plan") {
  const { evaluation: found, question } = view;
  return card("plan", title, null, ask(question, found), pills(found.strategy), figures(found), proof(result), notes(found));
}

function ask(question, found) {
  const length = question.seq_len ? `sequences of ${whole(question.seq_len)} tokens, ` : "";
  return el(
    "p", { class: "ask" },
    el("strong", {}, question.model), ` (${billions(found.model.parameters)} parameters`,
    found.model.active_parameters < found.model.parameters ? `, ${billions(found.model.active_parameters)} active` : "",
    `) on ${(question.hardware ?? `${whole(question.devices)} x ${question.device}`).replaceAll(" x ", " × ")}, ${length}${whole(question.global_batch)}${question.seq_len ? "" : " samples"} a step, ${question.precision}, ${question.engine}`,
  );
}

/** The knobs of a strategy as pills; axes of size one are left out. */
export function pills(strategy) {
  const list = el("ul", { class: "pills", "aria-label": "The layout" });
  for (const [key, short, long] of PILLS) {
    if ((strategy[key] ?? 1) <= 1) continue;
    list.append(el("li", { class: "pill" }, el("i", { style: { background: colourVariable(key === "vpp" ? "pp" : key) } }), el("b", {}, `${short}${strategy[key]}`), el("span", {}, long)));
  }
  const rest = [
    [`ZeRO-${strategy.zero}`, zeroWord(strategy.zero)], [`${strategy.mbs}`, `sequence${strategy.mbs > 1 ? "s" : ""} a micro-batch`],
    [strategy.schedule, "schedule"], [strategy.recompute, "recompute"],
  ];
  if (strategy.offload !== "none") rest.push([strategy.offload, "offload"]);
  for (const [value, what] of rest) list.append(el("li", { class: "pill off" }, el("b", {}, value), el("span", {}, what)));
  return list;
}

function zeroWord(stage) {
  return ["nothing sharded", "optimizer sharded", "and gradients sharded", "and weights sharded"][stage] ?? "";
}

/** One line for a layout, as the terminal writes it. */
export function layoutText(strategy) {
  const axes = PILLS.filter(([key]) => key !== "vpp" && (strategy[key] ?? 1) > 1).map(([key, short]) => `${short}${strategy[key]}`);
  const chunks = strategy.vpp > 1 ? ` ×${strategy.vpp}` : "";
  return `${axes.join(" ") || "one device"}${chunks} ZeRO-${strategy.zero} mbs ${strategy.mbs} ${strategy.schedule} ${strategy.recompute}`;
}

function figures(found) {
  const memory = found.memory;
  const perDevice = found.tokens_per_s_per_device ?? found.samples_per_s_per_device;
  const unit = found.tokens_per_s_per_device === null ? "samples/s" : "tokens/s";
  const used = memory.device_used_bytes / memory.capacity_bytes;
  return el(
    "div", { class: "figures" },
    figure("One step takes", seconds(found.step_s), `90 %: ${seconds(found.step_s_low)} to ${seconds(found.step_s_high)}`, found.step_s, "step_s"),
    figure("Each GPU trains", [three(perDevice), " ", el("span", { class: "unit" }, unit)], `${three(found.model_flops_per_s_per_device / 1e12)} TFLOP/s of the model`, perDevice, "rate"),
    figure("Of the GPU's peak", percent(found.mfu), "model FLOPs utilisation (MFU)", found.mfu, "mfu"),
    figure("Fullest GPU", gib(memory.device_used_bytes), `${percent(used, 0)} of ${gib(memory.capacity_bytes)}, stage ${memory.worst_stage}, ${words(memory.peak_phase)}`, memory.device_used_bytes, "memory"),
    el("div", { class: "figure" }, el("span", { class: "what" }, "Will it fit?"), el("span", {}, verdict(found.verdict)), el("span", { class: "more" }, `runs out of memory with a chance of ${percent(found.oom_probability)}`)),
  );
}

function figure(what, value, more, exact, key) {
  return el("div", { class: "figure" }, el("span", { class: "what" }, what), el("span", { class: "value", "data-value": exact, "data-key": key }, value), el("span", { class: "more" }, more));
}

/** A verdict as a word in a pill. */
export function verdict(found) {
  const text = { fits: "✓ fits", at_risk: "! at risk", does_not_fit: "✕ does not fit", illegal: "✕ illegal" }[found] ?? words(found);
  return el("span", { class: `verdict ${found}` }, text);
}

const FATES = [
  ["illegal", "the engine would refuse", "hatch2"], ["out_of_memory", "cannot fit, whatever is recomputed", "hatch"],
  ["bounded", "proved slower by a bound", ""], ["solved", "solved exactly", "dots"], ["open", "not looked at", "bars"],
];

/** Where every mesh of the search space went, and what that proves. */
export function proof(result) {
  if (!result) return null;
  const made = result.certificate;
  const counts = {
    illegal: Object.values(made.meshes_illegal).reduce((sum, each) => sum + each, 0), out_of_memory: made.meshes_out_of_memory,
    bounded: made.meshes_bounded, solved: made.meshes_solved, open: made.meshes_open,
  };
  const shown = FATES.filter(([key]) => counts[key] > 0);
  const strip = el("div", { class: "funnel", role: "img", "aria-label": `Of ${whole(made.meshes_total)} meshes: ${shown.map(([key, text]) => `${whole(counts[key])} ${text}`).join(", ")}` });
  const keys = el("ul", { class: "keys" });
  for (const [key, text, pattern] of shown) {
    const paint = { background: colourVariable(key) };
    strip.append(el("div", { class: pattern, style: { "background-color": colourVariable(key), flex: String(Math.max(counts[key] / made.meshes_total, 0.004)) } }));
    keys.append(el("li", {}, el("span", { class: `swatch ${pattern}`, style: { "background-color": paint.background } }), `${whole(counts[key])} ${text}`));
  }
  const rows = [...shown.map(([key, text]) => [text, right(whole(counts[key]), counts[key])]), ...Object.entries(made.meshes_illegal).map(([rule, count]) => [`illegal: ${rule}`, right(whole(count), count)])];
  return el("div", { class: "proof" }, el("p", {}, el("strong", {}, proofTitle(result)), ` ${proofSentence(made)}`), strip, keys, sure(result), numbers("Where every mesh went", ["What became of it", { text: "Meshes", right: true }], rows));
}

function proofTitle(result) {
  return { optimal: "Proved optimal.", feasible: "Good, not proved optimal.", infeasible: "Proved: nothing legal fits.", unknown: "Not finished." }[result.status] ?? words(result.status);
}

function proofSentence(made) {
  if (made.proof) return objectiveSentence(made.proof);
  const looked = `${whole(made.meshes_total)} meshes (with stage boundaries and recompute far more layouts) in ${seconds(made.wall_s)}`;
  if (made.lower_bound_s === null || made.gap === null) return `${looked}.`;
  return `No layout of the declared space takes less than ${seconds(made.lower_bound_s)}; the gap to the plan is ${percent(made.gap, 3)}. ${looked}.`;
}

/** What was made small or large, and how far from the best it can be. */
function objectiveSentence(found) {
  const number = (value) => (found.unit.startsWith("bytes") ? gib(value) : three(value));
  if (found.value === null || found.bound === null) return `Asked for the ${found.sense} ${found.unit}; ${found.points.length} questions were tried.`;
  const gap = found.gap === null || found.gap > 10 ? "" : `, gap ${percent(found.gap, 2)}`;
  const assumed = found.assumption ? ` (${found.assumption})` : "";
  return `The ${found.sense} ${found.unit}: ${number(found.value)}; no plan of the declared space has ${found.sense === "least" ? "less" : "more"} than ${number(found.bound)}${gap}${assumed}.`;
}

function sure(result) {
  const known = result?.confidence;
  if (!known || known.first_faster === null || known.first_faster === undefined || !known.second) return null;
  const simpler = known.simpler ? ` A simpler layout (${layoutText(known.simpler.strategy)}) takes ${signed(known.simpler.step_s / known.optimum.step_s - 1)}, inside the noise.` : "";
  return el("p", { class: "soft small" }, `Given what predictions may be wrong by, the first plan beats the second (${layoutText(known.second)}) with ${percent(known.first_faster, 0)}.${simpler}`);
}

function notes(found) {
  const assumed = found.assumed.map((each) => `${each.key} = ${each.value}${each.changes_parameters ? " (changes the parameter count)" : ""}`);
  const sources = Object.entries(found.provenance).map(([key, value]) => `${words(key)}: ${value}`);
  return el(
    "div", { class: "stack" },
    found.warnings.length ? el("div", { class: "note warn" }, el("strong", {}, "Mind"), el("ul", {}, found.warnings.map((text) => el("li", {}, text)))) : null,
    el("details", { class: "numbers" }, el("summary", {}, "What the numbers stand on"), el("p", { class: "small soft" }, `${sources.join("; ")}.`), assumed.length ? el("p", { class: "small soft" }, `Assumed, as the config does not say: ${assumed.join("; ")}.`) : null),
  );
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text && !text.endsWith(".") ? "." : ""}`;
}

/** What an infeasible answer says: the arithmetic and the smallest changes that would help. */
export function infeasibleCard(result, attempt = () => null) {
  const tries = result.relaxations.map((each) => attempt(each.change)), some = tries.some(Boolean);
  const rows = result.relaxations.map((each, index) => [el("strong", {}, each.change), each.detail, words(each.cost), right(each.step_s === null ? "" : seconds(each.step_s), each.step_s), ...(some ? [tries[index] ? el("button", { type: "button", class: "small nowrap", onclick: tries[index] }, "Try it") : ""] : [])]);
  const head = ["Change", "What it does", "Costs", { text: "Step", right: true }, ...(some ? [""] : [])];
  const help = rows.length ? [el("h3", {}, "Smallest changes that would help"), table("Smallest changes that would help", head, rows)] : null;
  const title = result.status === "unknown" ? "No plan yet" : "No legal layout fits on these devices";
  return card("plan", "Nothing fits", null, el("div", { class: "stack" }, el("div", { class: "note bad", role: "status" }, el("strong", {}, title), el("p", {}, sentence(result.reason || ""))), help, proof(result)));
}
