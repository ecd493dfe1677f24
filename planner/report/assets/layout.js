// How the model is cut: which stage holds which layers, and what every axis of the layout does, with its numbers.

import { card, el, numbers, onTheme, percent, right, seconds, traffic, whole } from "./base.js";
import { colourVariable, memberColour } from "./palette.js";
import { scheme } from "./schemes.js";

/** The card that explains the layout. */
export function layoutCard(view) {
  const about = "The layers from the first to the last, coloured by the pipeline stage that holds them. Below, what each way of splitting does in this plan, what it moves and what it costs.";
  return card("layout", "How the work is split", about, strip(view), el("div", { class: "axes-list" }, sentences(view)), stagesTable(view));
}

function strip(view) {
  const { grid, question } = view, count = grid.stages.length;
  const pieces = grid.stages.flatMap((chunks, rank) => chunks.map((chunk) => ({ ...chunk, rank }))).filter((each) => each.blocks > 0).sort((a, b) => a.first - b.first);
  const box = (wide, text, title, paint) => el("div", { title, style: { flex: `${wide} 1 0`, background: paint } }, text);
  const made = el("div", { class: "pieces", role: "img", "aria-label": `${question.blocks} layers on ${count} stages: ${pieces.map((each) => `${each.blocks} on stage ${each.rank}`).join(", ")}` }, box(1.4, "", "embedding", "var(--c8)"));
  const narrow = 0.011 * (question.blocks + 2.8); // a digit's share of the strip
  for (const piece of pieces) made.append(box(piece.blocks, piece.blocks < narrow * String(piece.rank).length ? "" : piece.rank, `stage ${piece.rank}: layers ${piece.first} to ${piece.first + piece.blocks - 1}`, memberColour(piece.rank, count)));
  made.append(box(1.4, "", "head and loss", "var(--c8)"));
  const under = el("div", { class: "under" }, el("span", {}, "embedding"), el("span", {}, `${question.blocks} layers; the number is the stage`), el("span", {}, "head, loss"));
  const redraw = () => { [...made.children].slice(1, -1).forEach((each, index) => { each.style.background = memberColour(pieces[index].rank, count); }); };
  onTheme(redraw);
  return el("div", {}, made, under);
}

function sentences(view) {
  const { evaluation: found, grid, facts, question } = view;
  const s = found.strategy;
  const axis = Object.fromEntries(grid.axes.map((each) => [each.axis, each]));
  const cost = (cause) => `${seconds(found.breakdown_s[cause])} of the step (${percent(found.breakdown_s[cause] / found.step_s)})`;
  const moved = (key) => traffic(Math.max(...axis[key].sent_bytes, 0));
  const link = (key) => grid.tiers[axis[key].tier].name;
  const made = [];
  if (s.tp > 1) made.push(item(s, "tp", `Tensor parallel ${s.tp}`, `Every matrix is cut into ${s.tp} parts, by columns, then by rows, so that one exchange per pair is enough. ${s.sp ? "Between them the sequence is cut too (sequence parallel)." : ""} Each GPU sends ${moved("tp")} a step over ${link("tp")}; what shows is ${cost("tp_communication")}.`));
  if (s.cp > 1) made.push(item(s, "cp", `Context parallel ${s.cp}`, `Each sequence of ${whole(question.seq_len)} tokens is cut into ${s.cp} parts; keys and values go round (${s.cp_kind}). Each GPU sends ${moved("cp")} a step over ${link("cp")}; what shows is ${cost("cp_communication")}.`));
  if (s.pp > 1) made.push(item(s, "pp", `Pipeline ${s.pp}${s.vpp > 1 ? ` with ${s.vpp} chunks each` : ""}`, `${facts.layers_per_stage} layers a stage. ${whole(facts.micro_batches)} micro-batches follow one another, so the idle share of equal stages is (p − 1) / (v m) = ${percent(facts.bubble, 2)}. Stage 0 holds up to ${Number(facts.in_flight_first_stage.toFixed(1))} micro-batches at once. Sends and waiting: ${cost("pp_communication")}, ${seconds(found.breakdown_s.pp_bubble)}.`));
  if (s.ep > 1) made.push(item(s, "ep", `Expert parallel ${s.ep}`, `The experts are spread over ${s.ep} GPUs; every token travels to its experts and back, forward and backward. Each GPU sends ${moved("ep")} a step over ${link("ep")}; what shows is ${cost("ep_communication")}.`));
  if (s.dp > 1 || facts.gradient_shards > 1) made.push(item(s, "dp", `Data parallel ${s.dp}, ZeRO ${s.zero}`, `${dataSentence(s, facts)} Each GPU sends ${moved("dp")} a step over ${link("dp")}; what shows is ${cost("dp_communication")}.`));
  if (s.recompute !== "none") made.push(item(s, "compute", `Recompute ${s.recompute}`, `Some results of the forward pass are thrown away and computed again in the backward pass: ${seconds(found.recompute_s)} more (${percent(found.recompute_s / found.step_s)}) for less memory.`));
  return made.length ? made : [item(s, "none", "One device", "Nothing is split: one device holds and computes everything.")];
}

function dataSentence(s, facts) {
  const copies = s.dp > 1 ? `${s.dp} groups train on different sequences and average their gradients.` : "There is one copy of the model; no group repeats it.";
  const shards = ["Each GPU keeps all optimizer states.", `Optimizer states are cut into ${facts.gradient_shards} shards.`, `Optimizer states and gradients are cut into ${facts.gradient_shards} shards.`, `Weights, gradients and optimizer states are cut into ${facts.gradient_shards} shards and gathered when needed.`];
  return `${copies} ${shards[s.zero] ?? ""}`;
}

function item(strategy, key, title, text) {
  return el("div", { class: "axis-card", style: { "border-left-color": colourVariable(key) } }, el("h3", {}, title), scheme(key, strategy), el("p", {}, text));
}

function stagesTable(view) {
  const rows = view.grid.stages.map((chunks, rank) => {
    const blocks = chunks.reduce((sum, each) => sum + each.blocks, 0);
    return [`stage ${rank}`, right(whole(blocks), blocks), view.evaluation.memory.stages[rank].layers.join(", ")];
  });
  return numbers("Layers of every stage", ["Stage", { text: "Layers", right: true }, "Which"], rows);
}


