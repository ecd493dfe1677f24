// Where the step's time goes, and how evenly the stages work.

import { card, el, fill, numbers, percent, right, seconds, tabs, themed } from "./base.js";
import { axisStyle, chart, keyed, tooltip } from "./charts.js";
import { colour, decal, nameOf, TIME_CAUSES } from "./palette.js";

/** The card: the busiest stage by cause, or all stages. */
export function breakdownCard(view) {
  const { evaluation: found } = view;
  const body = el("div", { class: "stack" });
  const show = (what) => fill(body, what === "stages" ? stages(view) : causes(found));
  const about = `Every second of the stage that waits least (stage ${found.critical_stage}); the parts add up to the step. Messages count only where no computation hides them.`;
  const options = [["causes", "By cause"], ["stages", "All stages"]];
  const made = card("time", "Where the step's time goes", about, el("div", { class: "row" }, tabs("What to show", options, "causes", show)), body);
  show("causes");
  return made;
}

function causes(found) {
  const shown = TIME_CAUSES.filter((cause) => found.breakdown_s[cause] > 0).sort((a, b) => found.breakdown_s[b] - found.breakdown_s[a]);
  const longest = shown[0];
  const label = `Step of ${seconds(found.step_s)}: ${shown.map((cause) => `${nameOf(cause)} ${percent(found.breakdown_s[cause] / found.step_s)}`).join(", ")}`;
  const option = (width) => ({
    grid: { left: 8, right: width < 460 ? 96 : 132, top: 6, bottom: 6, containLabel: true },
    tooltip: tooltip((at) => `${nameOf(shown[at.dataIndex])}\n${seconds(at.value)}, ${percent(at.value / found.step_s, 2)} of the step`),
    xAxis: { type: "value", max: found.breakdown_s[longest] * 1.02, ...axisStyle(), axisLabel: { show: false } },
    yAxis: { type: "category", inverse: true, data: shown.map(nameOf), ...axisStyle({ grid: false, axisLabel: { width: width < 460 ? 118 : 200, overflow: "break", lineHeight: 14 } }) },
    series: [{
      type: "bar", barMaxWidth: 22, data: shown.map((cause, index) => ({ value: found.breakdown_s[cause], itemStyle: { color: colour(cause), decal: decal(index) } })),
      label: { show: true, position: "right", color: themed("--text"), fontSize: 12, formatter: (at) => `${seconds(at.value)}  ${percent(at.value / found.step_s)}` },
    }],
  });
  const again = found.recompute_s > 0 ? el("p", { class: "soft small" }, `Of the computation, ${seconds(found.recompute_s)} is recomputing what the forward pass threw away.`) : null;
  const rows = TIME_CAUSES.map((cause) => [nameOf(cause), right(seconds(found.breakdown_s[cause]), found.breakdown_s[cause]), right(percent(found.breakdown_s[cause] / found.step_s, 2))]);
  return [chart(label, 40 + shown.length * 34, option), again, numbers("Seconds of a step by cause", ["Cause", { text: "Seconds", right: true }, { text: "Share", right: true }], rows)];
}

const PARTS = [["busy_s", "computing", "compute"], ["reduction_exposed_s", "gradient reduction that shows", "dp_communication"], ["tail_s", "optimizer and gathers", "optimizer"], ["bubble_s", "waiting", "pp_bubble"]];

function stages(view) {
  const made = view.timeline;
  const label = `Seconds of ${made.ranks.length} stages; the longest wait ${seconds(Math.max(...made.bubble_s))}`;
  const names = PARTS.map(([, name]) => name);
  const option = (width) => ({
    grid: { left: 8, right: 20, top: keyed(names, width, 34).top, bottom: 20, containLabel: true }, legend: keyed(names, width, 34).legend,
    tooltip: tooltip((at) => `${at.name}, ${at.seriesName}\n${seconds(at.value)}, ${percent(at.value / made.step_s)}`),
    xAxis: { type: "value", max: Number(made.step_s.toPrecision(3)), name: "seconds", nameLocation: "middle", nameGap: 24, ...axisStyle({ axisLabel: { showMaxLabel: false } }) },
    yAxis: { type: "category", inverse: true, data: made.ranks.map((rank) => `stage ${rank.rank}`), ...axisStyle({ grid: false }) },
    series: PARTS.map(([key, name, paint], index) => ({ name, type: "bar", stack: "s", barMaxWidth: 22, barCategoryGap: "22%", data: made.ranks.map((rank) => rank[key]), itemStyle: { color: colour(paint), decal: decal(index) } })),
  });
  const rows = made.ranks.map((rank) => [`stage ${rank.rank}`, ...PARTS.map(([key]) => right(seconds(rank[key]), rank[key])), right(String(rank.in_flight_peak), rank.in_flight_peak)]);
  const head = ["Stage", ...PARTS.map(([, name]) => ({ text: name, right: true })), { text: "micro-batches in flight", right: true }];
  return [chart(label, Math.min(Math.max(100 + made.ranks.length * 26, 160), 640), option, null, names), numbers("Seconds of every stage", head, rows)];
}


