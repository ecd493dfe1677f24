// What if: the same layout with more devices, longer sequences or larger batches, priced again while the slider moves.

import { card, el, fill, gib, percent, right, seconds, signed, table, three, whole } from "/page/base.js";
import { layoutText, verdict } from "/page/answer.js";
import { ask } from "/page/client.js";
import { problemNote } from "/page/problems.js";

const KEPT = ["tp", "cp", "pp", "vpp", "ep", "etp", "zero", "mbs", "sp", "schedule", "recompute", "stages", "cp_kind", "order", "offload", "groups"];

/** A layout without what follows from the number of devices. */
export function withoutDevices(strategy) {
  const kept = Object.fromEntries(KEPT.filter((key) => key in strategy).map((key) => [key, strategy[key]]));
  return strategy.dp_replicate > 1 ? { ...kept, dp_replicate: strategy.dp_replicate } : kept;
}

/** A request with another number of devices, sequence length or batch. */
export function changed(request, at) {
  const job = { ...request.job, global_batch: at.batch };
  if (request.job.seq_len !== undefined && request.job.seq_len !== null) job.seq_len = at.seq;
  return { model: request.model, cluster: resized(request.cluster, at.devices), job };
}

function resized(cluster, devices) {
  if (cluster.kind === "preset") return { ...cluster, devices };
  const share = devices / devicesOf(cluster.spec.groups), groups = cluster.spec.groups.map((group) => grown(group, share));
  return { ...cluster, spec: { ...cluster.spec, groups, tiers: widened(cluster.spec.tiers, cluster.spec.tiers.length - 1) } };
}

/** A group of nodes that grows with the others, the last node partly used if it must. */
function grown(group, share) {
  const rest = { ...group }, devices = Math.round(devicesOf([group]) * share), nodes = Math.ceil(devices / group.devices_per_node);
  delete rest.devices;
  if (rest.tiers?.length > 1) rest.tiers = widened(rest.tiers, 1);
  return { ...rest, nodes, ...(nodes * group.devices_per_node === devices ? {} : { devices }) };
}

/** Tiers of which those from `first` on join as many devices as there are. */
function widened(tiers, first) {
  return tiers.map((tier, index) => { const each = { ...tier }; if (index >= first) delete each.devices_per_domain; return each; });
}

/** Devices of some groups, the last nodes partly used. */
export function devicesOf(groups) {
  return groups.reduce((sum, each) => sum + (each.devices ?? each.nodes * each.devices_per_node), 0);
}

/** Whether every group of a mixed cluster has a whole number of devices, and of replicas where they lie side by side. */
export function divides(cluster, strategy, share) {
  if (cluster.kind === "preset") return true;
  const replica = String(strategy.groups ?? "").includes("/") ? strategy.tp * strategy.cp * strategy.pp : 1;
  return cluster.spec.groups.every((group) => { const devices = devicesOf([group]) * share; return Math.abs(devices - Math.round(devices)) < 1e-6 && Math.round(devices) % replica === 0 && devices >= 1; });
}

/** Values of a slider around the present one: halved and doubled, with what lies between in equal steps. */
export function stops(present, unit, most, works = () => true) {
  const found = new Set([present]);
  for (let value = unit; value <= Math.min(most, present * 16); value *= 2) found.add(value);
  for (let share = 0.25; share <= 3; share += 0.25) { const value = Math.round((present * share) / unit) * unit; if (value >= unit && value <= most) found.add(value); }
  return [...found].filter((value) => value === present || works(value)).sort((a, b) => a - b);
}

/** The card; `candidates` are evaluations, `search(request)` starts a search with what the sliders say. */
export function slidersCard(request, question, candidates, search) {
  const base = { devices: question.devices, seq: request.job.seq_len ?? null, batch: request.job.global_batch };
  const state = { ...base }, out = el("div", { class: "stack", "aria-live": "polite" });
  const one = candidates[0].strategy, unit = base.devices / one.dp; // one more replica, on every kind of device where there are several
  const even = (devices) => base.batch % (one.mbs * Math.round(devices / unit)) === 0; // equal numbers of micro-batches
  const works = (devices) => even(devices) && divides(request.cluster, one, devices / base.devices);
  const numbers = Number.isInteger(unit) ? stops(base.devices, unit, 100_000, works) : [base.devices];
  const again = latest(() => reprice(request, state, base, candidates, out, search));
  const sliders = [
    el("div", {}, slider("devices", "Devices", numbers, base.devices, state, again), el("p", { class: "small soft", id: "devices-why" }, whyDevices(request, base, numbers, one))),
    base.seq === null ? null : slider("seq", "Tokens a sequence", stops(base.seq, Math.min(1024, base.seq), 2 ** 21), base.seq, state, again),
    slider("batch", "Sequences a step", stops(base.batch, one.mbs * one.dp, 10_000_000), base.batch, state, again),
  ];
  const about = "Move a slider: the layouts that are known are priced again at once. Another number of devices may have another best layout; search again to find it.";
  again();
  return card("whatif", "What if …", about, el("div", { class: "split-row" }, el("div", { class: "stack" }, sliders), out));
}

/** What the slider may do and why it ends where it ends. */
function whyDevices(request, base, numbers, one) {
  const kinds = request.cluster.kind === "spec" ? request.cluster.spec.groups.length : 1;
  const parts = [["tp", "TP"], ["cp", "CP"], ["pp", "PP"]].filter(([key]) => one[key] > 1).map(([key, name]) => `${name}${one[key]}`).join(" × ");
  const taken = one.tp * one.cp * one.pp, unit = base.devices / one.dp, idle = base.devices - taken * one.dp;
  const left = idle > 0 ? ` (${three(idle)} of ${three(base.devices)} devices are idle in this plan)` : "";
  const copy = `One copy of the model takes ${three(taken)} device${taken === 1 ? "" : "s"}${parts ? ` (${parts})` : ""}${left}`;
  if (numbers.length < 2) return `${copy}; no other number divides ${three(base.batch)} sequences and every kind of node. Search with another cluster instead.`;
  return `${copy}, so devices come in steps of ${three(unit)}, as far as they share the ${three(base.batch)} sequences evenly.${kinds > 1 ? ` All ${kinds} kinds of devices grow together.` : ""}`;
}

function slider(key, label, values, present, state, again) {
  const output = el("output", {}, whole(present));
  const input = el("input", { type: "range", min: "0", max: String(values.length - 1), step: "1", value: String(values.indexOf(present)), id: `slider-${key}`, "aria-valuetext": whole(present), disabled: values.length < 2 });
  input.addEventListener("input", () => {
    state[key] = values[Number(input.value)];
    output.textContent = whole(state[key]);
    input.setAttribute("aria-valuetext", whole(state[key]));
    again();
  });
  return el("label", { class: "slider" }, el("span", { class: "top-line" }, label, output), input);
}

/** Runs one call at a time and, when the world has moved meanwhile, once more. */
function latest(work) {
  let running = false, wanted = false;
  return async () => {
    wanted = true;
    if (running) return;
    running = true;
    while (wanted) { wanted = false; await work(); }
    running = false;
  };
}

/** The layout that is shown first, as fast as it goes; then the others. */
async function reprice(request, state, base, candidates, out, search) {
  const began = performance.now(), at = { ...state }, question = changed(request, at), strategies = candidates.map((each) => withoutDevices(each.strategy));
  const price = async (some) => (await ask("POST", "/v1/evaluations", { ...question, strategies: some })).items;
  try {
    const [first] = await price(strategies.slice(0, 1)), same = Object.keys(base).every((key) => at[key] === base[key]), rest = el("div");
    out.dataset.ms = (performance.now() - began).toFixed(1);
    fill(out, first.evaluation ? shown(first.evaluation, candidates[0], at, base) : refused(first.problem), rest, same ? null : el("div", {}, el("button", { type: "button", id: "search-again", onclick: () => search({ ...request, ...question }) }, "Search for the best plan here")));
    if (moved(at, state)) return;
    fill(rest, others([first, ...(strategies.length > 1 ? await price(strategies.slice(1)) : [])], candidates));
  } catch (problem) { fill(out, problemNote(problem)); }
}

function moved(at, state) {
  return Object.keys(at).some((key) => at[key] !== state[key]);
}

function shown(found, was, state, base) {
  const tokens = found.tokens_per_s_per_device ?? found.samples_per_s_per_device, before = was.tokens_per_s_per_device ?? was.samples_per_s_per_device;
  const used = found.memory.device_used_bytes / found.memory.capacity_bytes;
  const bar = el("div", { class: `bar ${used > 1 ? "over" : ""}`, role: "img", "aria-label": `${percent(used, 0)} of the device's memory` }, el("i", { style: { width: `${Math.min(100 * used, 100)}%` } }));
  const item = (what, value, exact, key, more) => el("div", { class: "figure" }, el("span", { class: "what" }, what), el("span", { class: "value", "data-value": exact, "data-key": `whatif-${key}` }, value), el("span", { class: "more" }, more));
  const total = tokens * state.devices, totalBefore = before * base.devices;
  return el(
    "div", { class: "figures four" }, item("Step", seconds(found.step_s), found.step_s, "step", signed(found.step_s / was.step_s - 1)),
    item("All devices", `${three(total)}/s`, total, "rate", `${signed(total / totalBefore - 1)} ${found.tokens_per_s_per_device === null ? "samples" : "tokens"}`), item("MFU", percent(found.mfu), found.mfu, "mfu", `was ${percent(was.mfu)}`),
    el("div", { class: "figure" }, el("span", { class: "what" }, "Memory"), el("span", { class: "value", "data-value": found.memory.device_used_bytes, "data-key": "whatif-memory" }, gib(found.memory.device_used_bytes)), bar, el("span", {}, verdict(found.verdict))),
  );
}

function refused(problem) {
  const fault = problem.errors?.[0] ?? {};
  return el("div", { class: "note warn" }, el("strong", {}, "The engine would refuse this"), el("p", {}, fault.detail ?? problem.detail), fault.allowed?.length ? el("p", {}, `Nearest that works: ${fault.allowed.join("; ")}`) : null);
}

function others(items, candidates) {
  const known = items.map((each, index) => ({ ...each, index })).filter((each) => each.evaluation?.fits).sort((a, b) => a.evaluation.step_s - b.evaluation.step_s);
  if (known.length === 0) return el("p", { class: "small soft" }, "None of the known layouts fits here.");
  const rows = known.map((each) => [each.index === 0 ? el("strong", {}, "the plan") : `#${each.index + 1}`, layoutText(candidates[each.index].strategy), right(seconds(each.evaluation.step_s), each.evaluation.step_s)]);
  return el("details", { class: "numbers" }, el("summary", {}, `Fastest known layout here: ${known[0].index === 0 ? "the plan" : `#${known[0].index + 1}`}`), table("Known layouts, priced again", ["", "Layout", { text: "Step", right: true }], rows));
}
