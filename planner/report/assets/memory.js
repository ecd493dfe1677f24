// Memory of every stage by cause, beside what a device has; one phase of the step at a time.

import { card, el, fill, gib, numbers, right, tabs, themed, words } from "./base.js";
import { axisStyle, chart, keyed, tooltip } from "./charts.js";
import { colour, decal, MEMORY_CAUSES } from "./palette.js";

const GIB = 1024 ** 3, OUTSIDE = "allocator, context";
const PHASES = { initialisation: "Building the model", checkpoint_load: "Loading a checkpoint", running: "Forward, loss and backward", optimizer_step: "Optimizer step" };

/** Bytes of every stage by cause: at its own peak, or in one phase. */
export function memoryRows(evaluation, phase) {
  return evaluation.memory.stages.map((stage) => {
    const causes = phase === "peak" ? stage.by_cause : phaseCauses(stage, phase);
    return { stage: stage.stage, capacity: stage.capacity_bytes ?? evaluation.memory.capacity_bytes, group: stage.group ?? "", causes, total: Object.values(causes).reduce((sum, each) => sum + each, 0), outside: stage.device_used_bytes - stage.allocated_bytes };
  });
}

function phaseCauses(stage, phase) {
  const found = stage.by_phase_cause;
  return phase === "running" ? found.loss ?? found.backward : found[phase] ?? {}; // a stage peaks in one of the two
}

/** The card. */
export function memoryCard(view) {
  const { evaluation: found } = view;
  const phases = new Set(["running", ...found.memory.stages.flatMap((stage) => Object.keys(stage.by_phase_cause))]);
  const options = [["peak", "Peak"], ...Object.entries(PHASES).filter(([key]) => phases.has(key))];
  const body = el("div", { class: "stack" });
  const show = (phase) => fill(body, drawn(found, phase), says(found, phase));
  const about = "What fills each GPU. A stage that comes early in the pipeline holds more micro-batches in flight, so more activations; the line is what the device has.";
  const made = card("memory", "Memory of every stage", about, el("div", { class: "row" }, tabs("Phase of the step", options, "peak", show)), body);
  show("peak");
  return made;
}

function drawn(found, phase) {
  const rows = memoryRows(found, phase);
  const causes = MEMORY_CAUSES.filter((cause) => rows.some((row) => row.causes[cause] > 0));
  const height = Math.min(Math.max(96 + rows.length * 26, 200), 640);
  const label = `Memory in ${words(phase)} of ${rows.length} stages, the fullest ${gib(Math.max(...rows.map((row) => row.total)))} of ${gib(found.memory.capacity_bytes)}`;
  const names = [...causes.map(words), OUTSIDE];
  return chart(label, height, (width) => ({ ...option(found, rows, causes), ...placed(keyed(names, width, 48)) }), null, names);
}

function placed({ legend, top }) {
  return { legend, grid: { left: 8, right: 22, top, bottom: 20, containLabel: true } };
}

function option(found, rows, causes) {
  const capacity = Math.max(...rows.map((row) => row.capacity)) / GIB, alike = rows.every((row) => row.capacity === rows[0].capacity);
  const names = rows.map((row) => `stage ${row.stage}${row.group ? ` (${row.group})` : ""}`);
  const bar = (name, values, index, key) => ({
    name, type: "bar", stack: "memory", data: values, barMaxWidth: 24, barCategoryGap: "22%",
    itemStyle: { color: colour(key), decal: decal(index), borderColor: themed("--card"), borderWidth: 0.6 },
  });
  const series = causes.map((cause, index) => bar(words(cause), rows.map((row) => (row.causes[cause] ?? 0) / GIB), index, cause));
  series.push(bar(OUTSIDE, rows.map((row) => row.outside / GIB), 6, "other"));
  if (!alike) series.push(capacities(rows));
  else series[0].markLine = {
    symbol: "none", silent: true, data: [{ xAxis: capacity }], lineStyle: { color: themed("--bad"), width: 2, type: "solid" },
    label: { formatter: `the device has ${gib(found.memory.capacity_bytes)}`, color: themed("--bad"), fontSize: 12, position: "start", rotate: 0, align: "right", distance: [0, 5] },
  };
  return {
    tooltip: tooltip((at) => `${at.name}\n${at.seriesName}: ${gib((at.value[0] ?? at.value) * GIB)}`),
    xAxis: { type: "value", name: "GiB", nameLocation: "middle", nameGap: 26, max: (range) => Math.ceil(Math.max(range.max, capacity) * 1.04), ...axisStyle({ axisLabel: { showMaxLabel: false } }) },
    yAxis: { type: "category", inverse: true, data: names, ...axisStyle({ grid: false }) },
    series,
  };
}

/** What each stage's own device has, where stages lie on different ones. */
function capacities(rows) {
  return {
    name: "the device has", type: "scatter", symbol: "rect", symbolSize: [3, 26], itemStyle: { color: themed("--bad") }, z: 5,
    data: rows.map((row, index) => [row.capacity / GIB, index]), tooltip: { formatter: (at) => `${rows[at.dataIndex].group}: the device has ${gib(rows[at.dataIndex].capacity)}` },
  };
}

function says(found, phase) {
  const rows = memoryRows(found, phase);
  const head = ["Stage", ...MEMORY_CAUSES.map((cause) => ({ text: words(cause), right: true })), { text: "allocated", right: true }, { text: "on the device", right: true }];
  const lines = rows.map((row) => [
    `stage ${row.stage}`, ...MEMORY_CAUSES.map((cause) => right(gib(row.causes[cause] ?? 0), row.causes[cause] ?? 0)),
    right(gib(row.total), row.total), right(gib(row.total + row.outside), row.total + row.outside),
  ]);
  const host = found.memory.host_bytes > 0 ? el("p", { class: "soft small" }, `${gib(found.memory.host_bytes)} more of each GPU's states lie in the host's memory.`) : null;
  return [host, numbers(`Memory by cause, ${words(phase)}`, head, lines)];
}
