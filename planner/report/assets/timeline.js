// The pipeline's timeline on a canvas: every operation of every stage, zoomed with keys, buttons and wheel.

import { card, el, fill, numbers, onTheme, percent, right, seconds, themed, whole } from "./base.js";
import { colour, colourVariable } from "./palette.js";
import { rankLines } from "./operations.js";

const LEFT = 66, AXIS = 24;
const LEGEND = [["forward", "forward", ""], ["backward", "backward", "hatch"], ["weight_gradient", "weight gradient", "dots"], ["reduction", "gradient reduction", "bars"], ["optimizer", "optimizer", "hatch2"], ["other", "fixed work, and waiting for the slowest device", "dots"]];

/** The card. */
export function timelineCard(view) {
  const data = view.timeline;
  const bubble = Math.max(...data.bubble_fraction);
  const about = `One line a stage, time to the right; the number in a box is its micro-batch, a lighter box a later chunk. What is empty is the bubble: ${most(view, bubble)} Zoom with the buttons, + and − or Ctrl and the wheel; drag or press the arrows to move.`;
  const cut = data.operations_total > data.columns.rank.length ? el("p", { class: "small soft cut" }, `The first ${whole(data.columns.rank.length)} of ${whole(data.operations_total)} operations are drawn.`) : null;
  return card("timeline", "The pipeline's timeline", about, stage(view), legend(data), cut, listed(data));
}

/** Who waits most, and what it holds less than the others where that is why. */
function most(view, bubble) {
  const stage = view.timeline.bubble_fraction.indexOf(bubble), blocks = layersOf(view.evaluation.strategy), less = blocks[stage] < Math.max(...blocks);
  return `stage ${stage} waits most, ${percent(bubble)} of the step${less ? `: it holds ${blocks[stage]} layer${blocks[stage] === 1 ? "" : "s"}, others up to ${Math.max(...blocks)}` : ""}.`;
}

/** Layers of every pipeline stage, its chunks together. */
function layersOf(strategy) {
  const counts = String(strategy.stages).split("+").map(Number);
  return Array.from({ length: strategy.pp }, (_, stage) => counts.filter((_count, index) => index % strategy.pp === stage).reduce((sum, each) => sum + each, 0));
}

function legend(data) {
  const used = new Set(data.columns.phase.map((each) => data.phases[each]));
  const shown = LEGEND.filter(([key]) => !["forward", "backward", "weight_gradient"].includes(key) || used.has(key) || (key === "backward" && used.has("input_gradient")));
  return el("ul", { class: "keys" }, shown.map(([key, text, pattern]) => el("li", {}, el("span", { class: `swatch ${pattern}`, style: { "background-color": colourVariable(key) } }), text)), el("li", {}, el("span", { class: "swatch", style: { border: "1px solid var(--line-strong)" } }), "waiting"));
}

function listed(data) {
  const rows = data.ranks.map((rank) => [`stage ${rank.rank}`, right(whole(rank.operations), rank.operations), right(seconds(rank.busy_s), rank.busy_s), right(seconds(rank.bubble_s), rank.bubble_s), right(percent(rank.bubble_fraction, 2), rank.bubble_fraction), right(String(rank.in_flight_peak), rank.in_flight_peak)]);
  const head = ["Stage", { text: "Operations", right: true }, { text: "Busy", right: true }, { text: "Waiting", right: true }, { text: "Share", right: true }, { text: "In flight", right: true }];
  return numbers("Timeline of every stage", head, rows);
}

function stage(view) {
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `Timeline of ${view.timeline.ranks.length} stages and ${view.timeline.micro_batches} micro-batches; arrows move, plus and minus zoom, Home shows all` });
  const readout = el("p", { class: "readout soft", "aria-live": "polite" }, "Point at a box, or focus the picture and press Enter to step through the operations of a stage.");
  const drawing = new Timeline(canvas, readout, view.timeline);
  const button = (text, label, act) => el("button", { type: "button", class: "icon", "aria-label": label, onclick: act }, text);
  const bar = el(
    "div", { class: "row no-print" }, button("+", "Zoom in", () => drawing.zoom(0.5)), button("−", "Zoom out", () => drawing.zoom(2)), button("All", "Show the whole step", () => drawing.show(0, 1)),
    button("Start", "Show the start: the pipeline fills", () => drawing.show(0, drawing.endShare())), button("End", "Show the end: the pipeline drains", () => drawing.show(1 - drawing.endShare(), 1)),
  );
  const box = el("div", { class: "stack" }, bar, el("div", { class: "canvas-box" }, canvas), readout);
  canvas.timeline = drawing; // what is drawn, for whoever asks the page
  return box;
}

class Timeline {
  constructor(canvas, readout, data) {
    this.canvas = canvas; this.readout = readout; this.data = data;
    this.lines = rankLines(data); this.from = 0; this.to = data.step_s; this.at = null; this.queued = false; this.drawnMs = 0;
    this.rowHeight = Math.min(Math.max(Math.floor(420 / this.lines.length), 12), 34);
    this.height = this.lines.length * this.rowHeight + AXIS + 6;
    canvas.style.height = `${this.height}px`;
    new ResizeObserver(() => this.draw()).observe(canvas);
    onTheme(() => this.queue());
    this.listen();
    if (this.lines[0].length > 150) this.show(0, this.endShare());
  }

  /** The same step with more of its operations; what is looked at stays. */
  renew(data) {
    this.data = data; this.lines = rankLines(data);
    this.canvas.closest(".card")?.querySelector(".cut")?.remove();
    this.queue();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.offsetX));
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => { held = { x: event.offsetX, from: this.from, to: this.to }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { held = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (held === null) return this.point(event.offsetX, event.offsetY);
      const moved = ((held.x - event.offsetX) / this.width()) * (held.to - held.from);
      return this.window(held.from + moved, held.to + moved);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const step = (this.to - this.from) * 0.2;
    const acts = {
      ArrowRight: () => (this.at ? this.step(1) : this.window(this.from + step, this.to + step)), ArrowLeft: () => (this.at ? this.step(-1) : this.window(this.from - step, this.to - step)),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Home: () => this.show(0, 1), Enter: () => this.select(0, this.first(0)), Escape: () => { this.at = null; this.queue(); },
      ArrowDown: () => this.at && this.select(Math.min(this.at.rank + 1, this.lines.length - 1)), ArrowUp: () => this.at && this.select(Math.max(this.at.rank - 1, 0)),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  width() { return this.canvas.clientWidth - LEFT - 6; }
  timeAt(x) { return this.from + ((x - LEFT) / this.width()) * (this.to - this.from); }
  endShare() { return Math.min((4 * this.lines.length + 6) / Math.max(this.data.operations_total / this.lines.length, 1), 1); }
  show(from, to) { this.window(from * this.data.step_s, to * this.data.step_s); }
  zoom(factor, around = (this.from + this.to) / 2) { this.window(around - (around - this.from) * factor, around + (this.to - around) * factor); }

  window(from, to) {
    const whole = this.data.step_s, size = Math.min(Math.max(to - from, whole * 1e-5), whole);
    this.from = Math.min(Math.max(from, 0), whole - size);
    this.to = this.from + size;
    this.queue();
  }

  first(rank) { const line = this.lines[rank]; return Math.max(line.findIndex((each) => each.end > this.from), 0); }
  step(by) { const line = this.lines[this.at.rank]; this.select(this.at.rank, Math.min(Math.max(this.at.index + by, 0), line.length - 1)); }

  select(rank, index = null) {
    const line = this.lines[rank];
    const at = index ?? this.nearest(line, this.at.operation.start);
    this.at = { rank, index: at, operation: line[at] };
    const { start, end } = line[at], size = this.to - this.from;
    if (start < this.from || end > this.to) this.window(start - size / 3, start - size / 3 + size);
    this.tell(rank, line[at]);
    this.queue();
  }

  nearest(line, start) {
    let low = 0, high = line.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (line[middle].end <= start) low = middle + 1; else high = middle; }
    return low;
  }

  point(x, y) {
    const rank = Math.floor(y / this.rowHeight);
    if (x < LEFT || rank < 0 || rank >= this.lines.length) return;
    const time = this.timeAt(x), line = this.lines[rank], index = this.nearest(line, time), found = line[index];
    if (found && found.start <= time && time <= found.end) { this.at = { rank, index, operation: found }; this.tell(rank, found); }
    else { this.at = null; fill(this.readout, el("strong", {}, `Stage ${rank} waits`), ` at ${seconds(Math.max(time, 0))} of the step.`); }
    this.queue();
  }

  tell(rank, found) {
    const which = found.microBatch === null ? "" : ` of micro-batch ${found.microBatch}${this.data.strategy.vpp > 1 ? `, chunk ${found.chunk}` : ""}`;
    fill(this.readout, el("strong", {}, `Stage ${rank}: ${found.name.replaceAll("_", " ")}${which}`), `, ${seconds(found.end - found.start)}, from ${seconds(found.start)} to ${seconds(found.end)}.`);
  }

  queue() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => { this.queued = false; this.draw(); });
  }

  draw() {
    const { canvas } = this, width = canvas.clientWidth;
    if (!canvas.isConnected || width === 0) return;
    const began = performance.now(), ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(this.height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = themed("--card"); pen.fillRect(0, 0, width, this.height);
    this.paints = paints(pen);
    this.scale = this.width() / (this.to - this.from);
    this.axis(pen, width);
    pen.save(); pen.beginPath(); pen.rect(LEFT, 0, width - LEFT, this.height); pen.clip();
    this.lines.forEach((line, rank) => this.line(pen, line, rank));
    this.mark(pen);
    pen.restore();
    this.labels(pen);
    this.drawnMs = performance.now() - began;
  }

  line(pen, line, rank) {
    const y = rank * this.rowHeight + 2, tall = this.rowHeight - 3;
    let last = -1;
    for (let index = this.nearest(line, this.from); index < line.length; index += 1) {
      const each = line[index];
      if (each.start > this.to) break;
      const x = LEFT + (each.start - this.from) * this.scale, wide = (each.end - each.start) * this.scale;
      if (x + wide - last < 0.7) continue; // nothing that a pixel could show
      last = x + Math.max(wide, 0.7);
      this.box(pen, each, { x, y, wide: Math.max(wide, 0.7), tall });
    }
  }

  box(pen, each, { x, y, wide, tall }) {
    const paint = this.paints[each.paint];
    pen.globalAlpha = 1 - 0.42 * (each.chunk ?? 0) / Math.max(this.data.strategy.vpp, 1);
    pen.fillStyle = paint.colour; pen.fillRect(x, y, Math.max(wide - (wide > 4 ? 1 : 0), 0.7), tall);
    pen.globalAlpha = 1;
    if (wide < 5) return;
    if (paint.pattern) { pen.fillStyle = paint.pattern; pen.fillRect(x, y, wide - 1, tall); }
    if (wide < 17 || tall < 12 || each.microBatch === null) return;
    pen.font = "600 11px system-ui, sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle";
    pen.lineWidth = 3; pen.strokeStyle = themed("--card"); pen.fillStyle = themed("--text");
    pen.strokeText(each.microBatch, x + wide / 2, y + tall / 2 + 0.5); pen.fillText(each.microBatch, x + wide / 2, y + tall / 2 + 0.5);
  }

  mark(pen) {
    if (!this.at) return;
    const { start, end } = this.at.operation;
    pen.strokeStyle = themed("--text"); pen.lineWidth = 2;
    pen.strokeRect(LEFT + (start - this.from) * this.scale, this.at.rank * this.rowHeight + 1, Math.max((end - start) * this.scale, 2), this.rowHeight - 1);
  }

  labels(pen) {
    pen.fillStyle = themed("--soft"); pen.textAlign = "right"; pen.textBaseline = "middle"; pen.font = "12px system-ui, sans-serif";
    const every = Math.ceil(13 / this.rowHeight);
    this.lines.forEach((_, rank) => { if (rank % every === 0) pen.fillText(`stage ${rank}`, LEFT - 8, (rank + 0.5) * this.rowHeight); });
  }

  axis(pen, width) {
    const y = this.lines.length * this.rowHeight + 4, step = niceStep((this.to - this.from) / Math.max(width / 110, 2));
    pen.fillStyle = themed("--soft"); pen.strokeStyle = themed("--line"); pen.lineWidth = 1; pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "top";
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) {
      const x = LEFT + (time - this.from) * this.scale;
      pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, y); pen.stroke();
      pen.textAlign = x > width - 40 ? "right" : "center"; pen.fillText(seconds(Number(time.toPrecision(6))), x, y + 4);
    }
  }
}

/** 1, 2 or 5 times a power of ten, at least as long as asked. */
export function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least);
}

function paints(pen) {
  const made = {};
  for (const [key, , pattern] of LEGEND) made[key] = { colour: colour(key), pattern: pattern ? patternOf(pen, pattern) : null };
  return made;
}

function patternOf(pen, kind) {
  const tile = document.createElement("canvas");
  tile.width = 6; tile.height = 6;
  const brush = tile.getContext("2d");
  brush.strokeStyle = kind === "hatch2" ? "rgba(0,0,0,.4)" : "rgba(255,255,255,.5)"; brush.fillStyle = brush.strokeStyle; brush.lineWidth = 1.4;
  brush.beginPath();
  if (kind === "hatch") { brush.moveTo(0, 6); brush.lineTo(6, 0); brush.moveTo(-1, 1); brush.lineTo(1, -1); brush.moveTo(5, 7); brush.lineTo(7, 5); }
  else if (kind === "hatch2") { brush.moveTo(0, 0); brush.lineTo(6, 6); }
  else if (kind === "bars") { brush.moveTo(0, 3); brush.lineTo(6, 3); }
  if (kind === "dots") brush.fillRect(2, 2, 2, 2); else brush.stroke();
  return pen.createPattern(tile, "repeat");
}


