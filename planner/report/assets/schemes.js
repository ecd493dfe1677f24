// What each way of splitting does, as a small drawing with this plan's own number of parts (at most four are drawn).

import { svg } from "./base.js";
import { colourVariable } from "./palette.js";

const WIDE = 232, TALL = 76, INK = "var(--soft)";

/** The drawing of one axis of a strategy, or null where there is none. */
export function scheme(key, strategy) {
  const draw = { tp: tensor, cp: context, pp: pipeline, ep: experts, dp: data, compute: again }[key];
  if (!draw) return null;
  const made = svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, class: "scheme", "aria-hidden": "true" });
  made.append(...draw(strategy, colourVariable(key)).flat(Infinity).filter(Boolean));
  return made;
}

function parts(count) { return Math.min(count, 4); }

function box(x, y, width, height, paint, filled = true) {
  const style = filled ? { fill: paint, stroke: "var(--card)", "stroke-width": "1.5" } : { fill: "none", stroke: paint, "stroke-width": "1.5", "stroke-dasharray": "3 2" };
  return svg("rect", { x, y, width, height, rx: 2.5, style });
}

function shade(paint, index, count) {
  return `color-mix(in srgb, ${paint} ${100 - (55 * index) / Math.max(count - 1, 1)}%, var(--card))`;
}

function text(x, y, words, anchor = "middle") {
  return svg("text", { x, y, "text-anchor": anchor, "font-size": 11, style: { fill: INK } }, words);
}

function arrow(x1, y1, x2, y2) {
  const angle = Math.atan2(y2 - y1, x2 - x1), head = [2.6, -2.6].map((turn) => `${x2 - 6 * Math.cos(angle + turn / 5)},${y2 - 6 * Math.sin(angle + turn / 5)}`);
  return [svg("line", { x1, y1, x2, y2, style: { stroke: INK, "stroke-width": "1.4" } }), svg("polygon", { points: `${x2},${y2} ${head.join(" ")}`, style: { fill: INK } })];
}

function range(count) { return Array.from({ length: count }, (_, i) => i); }

/** A matrix by columns, then one by rows, then a sum. */
function tensor(s, paint) {
  const n = parts(s.tp), w = 60 / n, h = 48 / n;
  return [
    range(n).map((i) => box(6 + i * w, 8, w, 48, shade(paint, i, n))), arrow(72, 32, 94, 32), range(n).map((i) => box(100, 8 + i * h, 60, h, shade(paint, i, n))),
    arrow(166, 32, 188, 32), box(194, 8, 32, 48, paint, false), text(210, 37, "Σ"), text(36, 71, "by columns"), text(130, 71, "by rows"), text(210, 71, "sum"),
  ];
}

/** A sequence in parts whose keys and values go round. */
function context(s, paint) {
  const n = parts(s.cp), w = 220 / n;
  const hops = range(n - 1).map((i) => svg("path", { d: `M ${6 + w * (i + 0.55)} 28 q ${w / 2.2} -24 ${w * 0.9} -2`, style: { fill: "none", stroke: INK, "stroke-width": "1.4" } }));
  return [range(n).map((i) => box(6 + i * w, 30, w, 24, shade(paint, i, n))), hops, text(116, 71, "one sequence; keys and values go round")];
}

/** Micro-batches that follow one another through the stages. */
function pipeline(s, paint) {
  const n = parts(s.pp), h = 56 / n, w = 18;
  const rows = range(n).map((stage) => range(5).map((batch) => box(8 + (stage + batch) * w, 4 + stage * h, w - 2, h - 3, shade(paint, batch, 5))));
  return [rows, arrow(182, 30, 222, 30), text(202, 22, "time"), text(8, 71, "micro-batches through the stages", "start")];
}

/** Tokens to their experts. */
function experts(s, paint) {
  const n = parts(s.ep), h = 56 / n, lines = range(6).map((token) => [token, (token * 7 + 1) % n]);
  return [
    range(6).map((token) => svg("circle", { cx: 16, cy: 8 + token * 10, r: 3.6, style: { fill: INK } })),
    lines.map(([token, expert]) => svg("line", { x1: 22, y1: 8 + token * 10, x2: 128, y2: 4 + (expert + 0.5) * h, style: { stroke: shade(paint, expert, n), "stroke-width": "1.6" } })),
    range(n).map((expert) => box(130, 4 + expert * h, 88, h - 3, shade(paint, expert, n))), text(24, 72, "tokens"), text(174, 72, "experts"),
  ];
}

/** Copies with different data, whose gradients are averaged; with ZeRO each keeps a part. */
function data(s, paint) {
  const n = Math.max(parts(s.dp), s.zero > 0 ? 2 : 1), gap = 220 / n, w = Math.min(gap - 14, 46);
  const copies = range(n).map((i) => {
    const x = 6 + i * gap + (gap - w) / 2;
    const kept = s.zero > 0 ? [box(x, 6, w, 34, paint, false), box(x, 6 + (34 / n) * i, w, 34 / n, paint)] : [box(x, 6, w, 34, paint)];
    return [kept, arrow(x + w / 2, 42, x + w / 2, 53)];
  });
  return [copies, svg("line", { x1: 10, y1: 55, x2: 222, y2: 55, style: { stroke: INK, "stroke-width": "2" } }), text(116, 70, s.zero > 0 ? "gradients meet; each keeps its part" : "gradients are averaged")];
}

/** Layers whose results are thrown away and made again. */
function again(s, paint) {
  const kept = (i) => i === 0 || s.recompute === "none" || (!s.recompute.startsWith("full") && i % 2 === 0);
  return [range(6).map((i) => box(8 + i * 36, 12, 30, 26, paint, kept(i))), svg("path", { d: "M 206 44 q -90 22 -180 0", style: { fill: "none", stroke: INK, "stroke-width": "1.4" } }), text(116, 71, "dashed: computed again on the way back")];
}
