// Step time against memory of all known layouts; a click shows one in every other view.

import { card, el, gib, percent, right, seconds, signed, table, themed } from "./base.js";
import { layoutText, verdict } from "./answer.js";
import { axisStyle, chart, tooltip } from "./charts.js";

const FOLLOWING = new Set(["dp_shard", "dp_replicate", "stages"]);
const SYMBOLS = { fits: "circle", at_risk: "triangle", does_not_fit: "diamond" };

/** `tp 2 → 4, dp 8 → 4`: the knobs of another layout that differ. */
export function differs(ours, theirs) {
  const changed = Object.keys({ ...ours, ...theirs }).filter((key) => String(ours[key]) !== String(theirs[key]));
  const main = changed.filter((key) => !FOLLOWING.has(key));
  return (main.length ? main : changed).map((key) => `${key} ${ours[key]} → ${theirs[key]}`).join(", ") || "nothing";
}

/** The card; `choose(index)` is called with 0 for the plan, then the runners-up, or what `names` says that they are. */
export function alternativesCard(candidates, selected, choose, names = []) {
  const best = candidates[0];
  const what = names.length ? "The layouts that are compared." : "The plan and its runners-up, each the best of another mesh.";
  const about = `${what} Left is faster, low needs less memory. Choose one to see it in every view.`;
  const capacity = best.memory.capacity_bytes;
  const label = `${candidates.length} layouts from ${seconds(best.step_s)} to ${seconds(Math.max(...candidates.map((each) => each.step_s)))}`;
  const draw = chart(label, 300, (width) => option({ candidates, selected, capacity, names }, width), (at) => choose(at.data.index));
  const head = ["", "Layout", { text: "Step", right: true }, { text: "Slower", right: true }, { text: "MFU", right: true }, { text: "On the device", right: true }, "Verdict", `What differs from ${names[0] ?? "the plan"}`];
  const rows = candidates.map((each, index) => ({
    props: { class: "pick", "aria-selected": String(index === selected), onclick: () => choose(index) },
    cells: [pick(index, index === selected, choose, names), layoutText(each.strategy), right(seconds(each.step_s), each.step_s), right(index ? signed(each.step_s / best.step_s - 1) : "–", each.step_s / best.step_s - 1),
      right(percent(each.mfu), each.mfu), right(gib(each.memory.device_used_bytes), each.memory.device_used_bytes), verdict(each.verdict), index ? differs(best.strategy, each.strategy) : names[0] ?? "the plan"],
  }));
  const listed = table("All known layouts", head, rows, { class: "whole" });
  return card("alternatives", "Time against memory", about, draw, listed);
}

function pick(index, chosen, choose, names) {
  const name = names[index] ?? (index === 0 ? "plan" : `#${index + 1}`);
  return el("button", { type: "button", "aria-pressed": String(chosen), class: "icon small", "data-pick": index, onclick: (event) => { event.stopPropagation(); choose(index); } }, name);
}

/** Limits of an axis with room around the points. */
function around(values) {
  const low = Math.min(...values), high = Math.max(...values), pad = Math.max((high - low) * 0.14, high * 0.02);
  return { min: Number((low - pad).toPrecision(3)), max: Number((high + pad).toPrecision(3)) };
}

function option({ candidates, selected, capacity, names }, width) {
  const data = candidates.map((each, index) => ({
    value: [each.step_s, each.memory.device_used_bytes / 1024 ** 3], index, symbol: SYMBOLS[each.verdict], symbolSize: index === selected ? 22 : 15,
    itemStyle: { color: themed(index === 0 ? "--c3" : "--c1"), borderColor: index === selected ? themed("--text") : themed("--card"), borderWidth: index === selected ? 3 : 1 },
    label: { show: width > 420, position: index % 2 ? "bottom" : "top", distance: 7, color: themed("--text"), fontSize: 12, formatter: names[index] ?? (index === 0 ? "the plan" : `#${index + 1}`) },
  }));
  return {
    grid: { left: 14, right: 26, top: 34, bottom: 36, containLabel: true },
    tooltip: tooltip((at) => `${layoutText(candidates[at.data.index].strategy)}\n${seconds(at.value[0])}, ${gib(at.value[1] * 1024 ** 3)}\n${at.data.index ? differs(candidates[0].strategy, candidates[at.data.index].strategy) : names[0] ?? "the plan"}`),
    xAxis: { type: "value", ...around(candidates.map((each) => each.step_s)), name: "seconds a step", nameLocation: "middle", nameGap: 28, ...axisStyle({ axisLabel: { showMinLabel: false, showMaxLabel: false } }) },
    yAxis: { type: "value", ...around(candidates.map((each) => each.memory.device_used_bytes / 1024 ** 3)), name: width > 420 ? "GiB on the fullest device" : "GiB", nameLocation: "end", ...axisStyle({ nameTextStyle: { align: "left" }, axisLabel: { showMinLabel: false, showMaxLabel: false } }) },
    series: [{ type: "scatter", data, cursor: "pointer", markLine: capacityLine(candidates, capacity) }],
  };
}

function capacityLine(candidates, capacity) {
  const top = Math.max(...candidates.map((each) => each.memory.device_used_bytes));
  if (top < 0.8 * capacity) return undefined;
  return { silent: true, symbol: "none", data: [{ yAxis: capacity / 1024 ** 3 }], lineStyle: { color: themed("--bad"), width: 2 }, label: { formatter: "capacity", position: "insideEndTop", color: themed("--bad") } };
}


