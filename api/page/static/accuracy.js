// How far predictions are from measured runs, source by source.

import { card, el, fill, numbers, percent, right, seconds, table, themed, whole } from "/page/base.js";
import { axisStyle, chart, tooltip } from "/page/charts.js";
import { ask } from "/page/client.js";
import { problemNote } from "/page/problems.js";

/** The card; asks the service when it is opened, as that takes seconds. */
export function accuracyCard() {
  const out = el("div", { class: "stack", "aria-live": "polite" });
  const load = async () => {
    fill(out, el("p", { role: "status" }, el("span", { class: "busy" }), " Predicting the published runs, some seconds …"));
    try { fill(out, shown(await ask("GET", "/v1/accuracy"))); } catch (problem) { fill(out, problemNote(problem, load)); }
  };
  fill(out, el("div", {}, el("button", { type: "button", id: "accuracy-load", onclick: load }, "Predict the published runs now")));
  return card("accuracy", "How far to trust it", "Each point is a run that somebody published: left to right what they measured, upwards what the planner predicts. On the line they agree.", out);
}

function shown(report) {
  const rows = report.rows.filter((row) => row.measured_step_s > 0 && row.predicted_step_s > 0);
  const { summary } = report, within = (limit) => rows.filter((row) => Math.abs(row.step_error) <= limit).length / Math.max(rows.length, 1);
  const head = ["Source", { text: "Runs", right: true }, { text: "Step, median error", right: true }, { text: "Step, mean error", right: true }, { text: "Memory, mean error", right: true }, { text: "Inside the 90 % interval", right: true }];
  const sources = Object.entries(report.by_source).map(([name, found]) => [name, ...["n", "step_median_ape", "step_mape", "memory_mape", "within_interval"].map((key) => figure(found[key], key))]);
  return el(
    "div", { class: "stack" }, el("p", {}, `${whole(rows.length)} runs with step times: half of the predictions are within ${percent(summary.step_median_ape ?? 0)}, ${percent(within(0.1), 0)} within 10 %.`),
    scatter(rows), numbers("Predicted and measured steps", ["Run", { text: "Measured", right: true }, { text: "Predicted", right: true }, { text: "Error", right: true }], rows.map((row) => [row.id, right(seconds(row.measured_step_s), row.measured_step_s), right(seconds(row.predicted_step_s), row.predicted_step_s), right(percent(row.step_error), row.step_error)])),
    table("Errors by source", head, sources), el("p", { class: "small soft" }, "Constants were fitted on some of these runs; docs/accuracy.md says on which, and how far off sources are that no constant has seen."),
  );
}

function figure(value, key) {
  if (value === null || value === undefined) return right("–");
  return right(key === "n" ? whole(value) : percent(value), value);
}

function scatter(rows) {
  const steps = rows.flatMap((row) => [row.measured_step_s, row.predicted_step_s]), low = Math.min(...steps) * 0.8, high = Math.max(...steps) * 1.25;
  const points = rows.map((row) => ({ value: [row.measured_step_s, row.predicted_step_s], name: row.id }));
  return chart(`Predicted against measured step time of ${rows.length} runs`, 360, () => ({
    grid: { left: 16, right: 24, top: 16, bottom: 40, containLabel: true }, tooltip: tooltip((at) => `${at.name}\nmeasured ${seconds(at.value[0])}, predicted ${seconds(at.value[1])}`),
    xAxis: { type: "log", min: low, max: high, name: "measured step, s", nameLocation: "middle", nameGap: 28, ...axisStyle({ axisLabel: { formatter: plain } }) },
    yAxis: { type: "log", min: low, max: high, name: "predicted step, s", nameLocation: "middle", nameGap: 44, ...axisStyle({ axisLabel: { formatter: plain } }) },
    series: [
      { type: "line", data: [[low, low], [high, high]], symbol: "none", silent: true, lineStyle: { color: themed("--line-strong"), type: "dashed", width: 1.5 } },
      { type: "scatter", data: points, symbolSize: 8, itemStyle: { color: themed("--c1"), opacity: 0.75 } },
    ],
  }));
}

function plain(value) {
  return String(Number(value.toPrecision(2)));
}
