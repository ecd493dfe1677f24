// The plan as it improves: the best step so far above, the bound that nothing beats below, until they meet.

import { card, el, fill, numbers, percent, right, seconds, themed, whole } from "./base.js";
import { axisStyle, chart, keyed, tooltip } from "./charts.js";

const LINES = ["best layout so far", "nothing is faster than"];

/** The events, ending with what the answer proves: the last line of a search comes before its last proof. */
export function ended(events, result) {
  const made = result?.certificate, last = events.at(-1);
  if (!made || !last || made.lower_bound_s === null || made.proof) return events;
  const best = result.best?.step_s ?? last.best_step_s;
  if (best === last.best_step_s && made.lower_bound_s === last.lower_bound_s) return events;
  return [...events, { at_s: Math.max(last.at_s, made.wall_s), lower_bound_s: made.lower_bound_s, best_step_s: best, gap: made.gap, meshes_done: made.meshes_total - made.meshes_open, meshes_total: made.meshes_total }];
}

/** A card that takes progress events `{at_s, lower_bound_s, best_step_s, gap, meshes_done, meshes_total}`. */
export function progressCard(events, live = false, title = "How the plan was found") {
  const body = el("div", { class: "stack" });
  const seen = [...events];
  const about = "A search has two sides: each better layout lowers the upper line, each proof lifts the lower one. Where they meet, nothing faster is left.";
  const made = card("search", live ? "Searching" : title, about, body);
  const show = () => fill(body, status(seen, live), drawn(seen), listed(seen));
  made.add = (event) => { seen.push(event); show(); };
  made.finish = (title) => { live = false; fill(made.querySelector("h2"), title); show(); };
  made.events = () => seen;
  show();
  return made;
}

function status(seen, live) {
  const last = seen.at(-1);
  if (!last) return el("p", { role: "status" }, el("span", { class: "busy" }), " Waiting for a place to search …");
  const best = last.best_step_s === null ? live ? "no layout yet" : "no layout that fits" : `best step ${seconds(last.best_step_s)}`;
  const gap = last.gap === null || last.gap === undefined ? "" : `, gap ${percent(last.gap, 2)}`;
  const text = `${whole(last.meshes_done ?? 0)} of ${whole(last.meshes_total ?? 0)} meshes, ${best}${gap}, after ${seconds(last.at_s)}`;
  return el("p", { role: "status", class: "small soft" }, live ? [el("span", { class: "busy" }), " "] : null, text);
}

function drawn(seen) {
  const upper = seen.filter((each) => each.best_step_s !== null).map((each) => [each.at_s, each.best_step_s]);
  const lower = seen.filter((each) => each.lower_bound_s !== null && each.lower_bound_s > 0).map((each) => [each.at_s, each.lower_bound_s]);
  if (upper.length + lower.length < 2) return null;
  const line = (name, data, paint, type, symbol) => ({ name, type: "line", step: "end", data, symbol, symbolSize: 7, showSymbol: data.length < 40, lineStyle: { width: 2.5, color: themed(paint), type }, itemStyle: { color: themed(paint) } });
  const top = Math.max(...upper.map((each) => each[1]), ...lower.map((each) => each[1])), low = Math.min(...upper.map((each) => each[1]), ...lower.map((each) => each[1]));
  const pad = Math.max((top - low) * 0.12, top * 0.01);
  const label = `Best step ${seconds(upper.at(-1)?.[1] ?? null)}, bound ${seconds(lower.at(-1)?.[1] ?? null)}`;
  return chart(label, 220, (width) => ({
    grid: { left: 10, right: 22, top: keyed(LINES, width, 50).top, bottom: 22, containLabel: true }, legend: keyed(LINES, width, 50).legend,
    tooltip: tooltip((at) => `${at.seriesName}\n${seconds(at.value[1])} after ${seconds(at.value[0])}`),
    xAxis: { type: "value", name: "seconds of search", nameLocation: "middle", nameGap: 26, ...axisStyle({ grid: false }) },
    yAxis: { type: "value", min: Number((low - pad).toPrecision(3)), max: Number((top + pad).toPrecision(3)), name: "seconds a step", nameLocation: "end", ...axisStyle({ nameTextStyle: { align: "left" }, axisLabel: { showMinLabel: false, showMaxLabel: false } }) },
    series: [line(LINES[0], upper, "--c3", "solid", "circle"), line(LINES[1], lower, "--c5", "dashed", "diamond")],
  }), null, LINES);
}

function listed(seen) {
  const rows = seen.map((each) => [right(seconds(each.at_s), each.at_s), right(seconds(each.best_step_s), each.best_step_s), right(seconds(each.lower_bound_s), each.lower_bound_s), right(whole(each.meshes_done ?? 0), each.meshes_done)]);
  return numbers("Progress of the search", [{ text: "After", right: true }, { text: "Best step", right: true }, { text: "Bound", right: true }, { text: "Meshes done", right: true }], rows);
}
