// Runs: a plan that trains, with its loss, throughput and logs as they come; or why this server starts none.

import { card, el, fill, numbers, right, seconds, table, tabs, themed, three, whole, words } from "/page/base.js";
import { axisStyle, chart, tooltip } from "/page/charts.js";
import { ask } from "/page/client.js";
import { field, select } from "/page/fields.js";
import { problemNote } from "/page/problems.js";

const LIVE = new Set(["queued", "launching", "running", "cancelling"]);
const POLL_MS = 1000;
const MAX_RANKS = 8;

/** The card; `planId` gives the stored plan's id, or null where the plan is not stored. */
export function runsCard(planId, predicted) {
  const list = el("div", { class: "stack" }), shown = el("div", { class: "stack" }), start = el("div", { class: "stack" });
  const state = { shown, list, predicted, watching: null };
  fill(list, el("p", { class: "soft" }, "…"));
  const made = card("runs", "Runs", "Train with the plan from here: predicted beside measured, step by step.", start, list, shown);
  const relist = async () => fill(list, listed((await ask("GET", "/v1/runs?limit=20")).items, state));
  state.relist = relist;
  const refresh = async () => {
    try {
      const found = await ask("GET", "/v1/runs?limit=20");
      if (!start.children.length) fill(start, startForm(planId, state, refresh));
      fill(list, listed(found.items, state));
    } catch (problem) { fill(list, disabled(problem) ? off() : problemNote(problem, refresh)); }
  };
  refresh();
  return made;
}

function disabled(problem) {
  return problem.code === "runs_disabled" || problem.status === 404;
}

function off() {
  return el("div", { class: "note", id: "runs-off" }, el("strong", {}, "This server starts no runs"), el("p", {}, "Runs are off unless whoever starts planner-server allows them. In a terminal: save plan.json, then ", el("code", {}, "planner run plan.json --steps 20"), "."));
}

function startForm(planId, state, refresh) {
  const steps = el("input", { type: "number", min: "1", value: "20", id: "run-steps" }), launcher = select(["local", "slurm", "kubernetes"], "local", { id: "run-launcher" }), out = el("div");
  const go = async () => {
    const id = planId();
    if (!id) { fill(out, el("p", { class: "soft small" }, "The answer to begin with is kept, not searched here: press \"Find the best plan\" first.")); return; }
    try {
      const { id: run } = await ask("POST", `/v1/plans/${id}/runs`, { launcher: launcher.value, steps: Number(steps.value) });
      fill(out);
      await refresh();
      watch(run, state);
    } catch (problem) { fill(out, disabled(problem) ? off() : problemNote(problem)); }
  };
  return el("div", { class: "stack" }, el("div", { class: "row low" }, field("Launcher", launcher), field("Steps", steps), el("button", { type: "button", id: "run-start", onclick: go }, "Start a run")), out);
}

function listed(items, state) {
  if (items.length === 0) return el("p", { class: "soft" }, "No runs yet.");
  const rows = items.map((run) => [el("button", { type: "button", class: "icon small", onclick: () => watch(run.id, state) }, run.id.slice(0, 14)), stateWord(run), run.launcher ?? "", run.created_at ?? ""]);
  return table("Runs", ["Run", "State", "Launcher", "Created"], rows);
}

function stateWord(run) {
  const kind = { succeeded: "fits", failed: "does_not_fit", cancelled: "at_risk" }[run.state] ?? "";
  const text = run.failure_code ? `${run.state}: ${run.failure_code}` : run.state;
  return el("span", { class: `verdict ${kind}` }, LIVE.has(run.state) ? [el("span", { class: "busy" }), " "] : null, text);
}

/** Shows one run and asks again while it lives. */
async function watch(id, state) {
  const mine = Symbol(id);
  state.watching = mine;
  const view = runView(id, state);
  fill(state.shown, view.node);
  while (state.watching === mine && view.node.isConnected) {
    try { if (!(await view.update())) return; } catch (problem) { fill(view.message, problemNote(problem)); return; }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

function runView(id, state) {
  const head = el("div", { class: "row" }), plots = el("div", { class: "plots" }), message = el("div"), log = el("pre", { class: "file", tabindex: "0", "aria-label": "Log" });
  const at = { rank: "", after: 0 }, steps = new Map();
  const choice = el("div");
  const offer = (count) => {
    const ranks = [["", "the run"], ...Array.from({ length: Math.min(count, MAX_RANKS) }, (_, i) => [String(i), `rank ${i}`])];
    fill(choice, tabs("Log of", ranks, at.rank, (value) => { at.rank = value; at.after = 0; log.textContent = ""; more(id, at, log); }));
  };
  offer(1);
  const stop = el("button", { type: "button", onclick: () => ask("POST", `/v1/runs/${id}/cancel`) }, "Cancel the run");
  const update = async () => {
    const run = await ask("GET", `/v1/runs/${id}`), metrics = await ask("GET", `/v1/runs/${id}/metrics?after=${Math.max(0, ...steps.keys())}`);
    for (const each of metrics.items) steps.set(each.step, each);
    const width = metrics.items.at(-1)?.memory_bytes?.length ?? 0;
    if (width > 0 && choice.querySelectorAll("button").length !== Math.min(width, MAX_RANKS) + 1) offer(width);
    if (run.state !== at.state) { at.state = run.state; state.relist?.(); }
    fill(head, el("h3", {}, id), stateWord(run), LIVE.has(run.state) ? stop : null, compared(run));
    fill(message, run.failure_detail ? el("div", { class: "note bad" }, el("strong", {}, words(run.failure_code)), el("p", {}, run.failure_detail)) : null);
    if (metrics.items.length || !plots.children.length) fill(plots, drawn([...steps.values()], run.predicted?.step_s ?? state.predicted));
    await more(id, at, log);
    return LIVE.has(run.state);
  };
  return { node: el("div", { class: "stack" }, head, message, plots, choice, log), update, message };
}

function compared(run) {
  const predicted = run.predicted?.step_s, measured = run.measured?.step_s;
  if (!predicted || !measured) return null;
  return el("span", { class: "soft small" }, `predicted ${seconds(predicted)} a step, measured ${seconds(measured)}`);
}

function drawn(steps, predicted) {
  if (steps.length === 0) return el("p", { class: "soft" }, "No step yet.");
  const rate = steps.some((each) => each.tokens_per_s) ? series(`Throughput, ${steps[0].unit ?? "tokens"}/s`, steps, "tokens_per_s", "--c3") : null;
  return [series("Loss", steps, "loss", "--c5"), series("Seconds a step", steps, "step_s", "--c1", predicted), rate];
}

async function more(id, at, log) {
  const rank = at.rank === "" ? "" : `rank=${at.rank}&`;
  let answer;
  try { answer = await ask("GET", `/v1/runs/${id}/logs?${rank}after=${at.after}`); } catch (problem) { if (problem.status === 404) return; throw problem; }
  if (answer.lines.length) log.textContent += `${answer.lines.map(readable).join("\n")}\n`;
  at.after = answer.next;
}

/** A line of a run's events in words; any other line as it is. */
export function readable(line) {
  if (!line.startsWith("{")) return line;
  let event;
  try { event = JSON.parse(line); } catch { return line; }
  if (event.event === "step") return `step ${event.step}: ${seconds(event.step_s)}, loss ${event.loss === null ? "not finite" : event.loss.toPrecision(5)}, ${three(event.tokens_per_s ?? 0)} ${event.unit ?? "tokens"}/s`;
  const rest = Object.entries(event).filter(([key, value]) => key !== "event" && typeof value !== "object").map(([key, value]) => `${words(key)} ${value}`);
  return `${event.event ?? "event"}: ${rest.join(", ")}`;
}

/** Room for the prediction, which may lie far from what was measured. */
function limits(data, predicted) {
  if (!predicted) return {};
  const values = [...data.map((each) => each[1]), predicted], low = Math.min(...values), high = Math.max(...values), pad = 0.1 * (high - low || high);
  return { min: Number(Math.max(low - pad, 0).toPrecision(2)), max: Number((high + pad).toPrecision(2)) };
}

function series(title, steps, key, paint, predicted) {
  const data = steps.filter((each) => each[key] !== null).map((each) => [each.step, each[key]]), last = data.at(-1)?.[1] ?? 0;
  const mark = predicted ? { silent: true, symbol: "none", data: [{ yAxis: predicted }], lineStyle: { color: themed("--c7"), type: "dashed" }, label: { formatter: `predicted ${seconds(predicted)}`, position: "insideEndTop", color: themed("--text") } } : undefined;
  const drawn = chart(`${title}, last ${three(last)}`, 220, () => ({
    grid: { left: 8, right: 20, top: 22, bottom: 30, containLabel: true }, tooltip: tooltip((at) => `step ${at.value[0]}: ${three(at.value[1])}`),
    xAxis: { type: "value", name: "step", nameLocation: "middle", nameGap: 22, minInterval: 1, ...axisStyle({ grid: false }) }, yAxis: { type: "value", scale: true, ...limits(data, predicted), ...axisStyle({ axisLabel: { showMinLabel: false, showMaxLabel: false } }) },
    series: [{ type: "line", data, symbolSize: 5, lineStyle: { color: themed(paint), width: 2.5 }, itemStyle: { color: themed(paint) }, markLine: mark }],
  }));
  return el("div", {}, el("h3", {}, title), drawn, numbers(title, [{ text: "Step", right: true }, { text: title, right: true }], data.map(([step, value]) => [right(whole(step), step), right(three(value), value)])));
}


