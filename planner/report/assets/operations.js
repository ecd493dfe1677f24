// A timeline's columns as one list of boxes a stage, in order of start; without a drawing, so it can be tested alone.

const PAINTS = { forward: "forward", backward: "backward", input_gradient: "backward", weight_gradient: "weight_gradient" };

/** Boxes `{start, end, name, paint, chunk, microBatch}` of every stage. */
export function rankLines(data) {
  const lines = data.ranks.map(() => []);
  const { rank, phase, chunk, micro_batch: batch, start_s: start, end_s: end, joined } = data.columns;
  for (let i = 0; i < rank.length; i += 1) {
    if (joined[i]) continue; // a backward inside the forward that is drawn already
    const name = data.phases[phase[i]];
    lines[rank[i]].push({ start: start[i], end: end[i], name, paint: PAINTS[name] ?? "forward", chunk: chunk[i], microBatch: batch[i] });
  }
  data.ranks.forEach((each, index) => {
    lines[index].sort((a, b) => a.start - b.start);
    if (data.operations_total === rank.length) lines[index].push(...tailOf(data, each));
  });
  return lines;
}

/** What a stage does after its last backward: the reduction that shows, the optimizer, what all wait for. */
export function tailOf(data, rank) {
  const mine = [];
  const add = (name, paint, start, length) => { if (length > 0) mine.push({ start, end: start + length, name, paint, chunk: 0, microBatch: null }); };
  add("gradient reduction that nothing hides", "reduction", lastEnd(data, rank.rank), rank.reduction_exposed_s);
  add("optimizer", "optimizer", data.barrier_s, data.optimizer_s[rank.rank]);
  add("parameter gather that nothing hides", "reduction", data.barrier_s + data.optimizer_s[rank.rank], rank.tail_s - data.optimizer_s[rank.rank]);
  add("fixed work of a step", "other", data.tail_end_s, data.fixed_s);
  add("wait for the slowest of all devices", "other", data.tail_end_s + data.fixed_s, data.straggler_s);
  return mine;
}

function lastEnd(data, rank) {
  const { rank: ranks, end_s: ends } = data.columns;
  let last = 0;
  for (let i = 0; i < ranks.length; i += 1) if (ranks[i] === rank && ends[i] > last) last = ends[i];
  return last;
}
