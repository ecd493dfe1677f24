// All devices of the mesh on a canvas, coloured by one axis; a device shows its groups, their links and their traffic.

import { card, el, fill, onTheme, right, seconds, table, tabs, themed, traffic, whole } from "./base.js";
import { memberColour, nameOf } from "./palette.js";
import { cells, coordinate, corner, groupOf, groupText, rankAt } from "./ranks.js";

const PAD = 10;

/** The card. */
export function gridCard(view) {
  const { grid } = view;
  const axes = grid.axes.filter((axis) => axis.size > 1 && axis.size * axis.stride <= grid.devices);
  const domain = grid.tiers[0].devices_per_domain;
  const about = `Every device, in blocks of ${domain} that ${grid.tiers[0].name} joins. Devices of one colour do the same part on the chosen axis; the number is the coordinate. Point at one, or use the arrow keys, to see whom it talks to.`;
  if (axes.length === 0) return card("grid", "Devices", "One device, so there is nobody to talk to.");
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `${whole(grid.devices)} devices; arrow keys move to the next one` });
  const told = el("div", { "aria-live": "polite" });
  const drawing = new Grid(canvas, told, grid, axes);
  canvas.grid = drawing;
  const bar = el("div", { class: "row" }, tabs("Colour by", axes.map((axis) => [axis.axis, `${nameOf(axis.axis)} ${axis.size}`]), drawing.axis.axis, (key) => drawing.colourBy(key)), jump(drawing, grid.devices));
  return card("grid", "Who talks to whom", about, el("div", { class: "stack" }, bar, el("div", { class: "grid-pair" }, el("div", { class: "canvas-box" }, canvas), told)));
}

function jump(drawing, devices) {
  const input = el("input", { type: "number", min: "0", max: String(devices - 1), value: "0", style: { width: "92px" } });
  input.addEventListener("input", () => { const rank = Number(input.value); if (Number.isInteger(rank) && rank >= 0 && rank < devices) drawing.select(rank); });
  drawing.onSelect = (rank) => { if (document.activeElement !== input) input.value = String(rank); };
  return el("label", { class: "row push" }, "Device", input);
}

class Grid {
  constructor(canvas, told, grid, axes) {
    this.canvas = canvas; this.told = told; this.grid = grid; this.axes = axes;
    this.axis = axes.find((axis) => axis.axis === "pp") ?? axes[0]; this.rank = 0; this.onSelect = () => {}; this.queued = false; this.drawnMs = 0;
    new ResizeObserver(() => this.draw()).observe(canvas);
    onTheme(() => this.queue());
    canvas.addEventListener("pointermove", (event) => {
      const rank = this.at && rankAt(event.offsetX - PAD, event.offsetY - PAD, this.at, grid.devices);
      if (rank !== null && rank !== undefined && rank !== this.rank) this.select(rank);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.tell();
  }

  key(event) {
    const across = this.at?.blockColumns ?? 1, moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -this.rank, End: this.grid.devices - 1 - this.rank, PageDown: this.at?.size ?? 8, PageUp: -(this.at?.size ?? 8) };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.select(Math.min(Math.max(this.rank + moves[event.key], 0), this.grid.devices - 1));
  }

  colourBy(key) { this.axis = this.axes.find((axis) => axis.axis === key); this.queue(); this.tell(); }
  select(rank) { this.rank = rank; this.onSelect(rank); this.tell(); this.queue(); }

  queue() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => { this.queued = false; this.draw(); });
  }

  /** Everything that is said about the chosen device. */
  tell() {
    const { grid, rank } = this, stage = this.stageOf(rank), node = Math.floor(rank / grid.devices_per_node);
    const rows = this.axes.map((axis) => {
      const tier = grid.tiers[axis.tier], sent = axis.sent_bytes[Math.min(stage, axis.sent_bytes.length - 1)];
      return {
        props: { "aria-selected": String(axis === this.axis) },
        cells: [
          el("span", {}, el("strong", {}, nameOf(axis.axis)), el("br"), el("span", { class: "soft" }, `${coordinate(rank, axis)} of ${axis.size}`)),
          el("span", {}, groupText(groupOf(rank, axis)), el("br"), el("span", { class: "soft" }, `${tier.name}, ${traffic(tier.bytes_per_s)}/s`)),
          sent === undefined ? right("with the above") : sent === 0 ? right("nothing on this stage", 0) : right(el("span", {}, traffic(sent), el("br"), el("span", { class: "soft" }, `${seconds(sent / tier.bytes_per_s)} of link`)), sent),
        ],
      };
    });
    fill(
      this.told, el("h3", {}, `Device ${rank}`), el("p", { class: "small soft" }, `Node ${node}, place ${rank % grid.devices_per_node}, pipeline stage ${stage}${grid.groups.length > 1 ? `, ${this.groupName(rank)}` : ""}. "Of link" is what the bytes take at the link's full rate, hidden or not.`),
      table(`Groups of device ${rank}`, ["Axis", "Talks to devices", { text: "Sends a step", right: true }], rows, { class: "whole" }),
    );
  }

  stageOf(rank) { const axis = this.grid.axes.find((each) => each.axis === "pp"); return axis ? coordinate(rank, axis) : 0; }

  groupName(rank) {
    let left = rank;
    for (const group of this.grid.groups) { if (left < group.devices) return `${group.name} (${group.device})`; left -= group.devices; }
    return "";
  }

  draw() {
    const { canvas, grid, axis } = this, width = canvas.clientWidth;
    if (!canvas.isConnected || width === 0) return;
    const began = performance.now(), ratio = window.devicePixelRatio || 1, at = cells(grid.devices, grid.tiers[0].devices_per_domain, width - 2 * PAD);
    this.at = at;
    const height = at.height + 2 * PAD;
    canvas.style.height = `${height}px`; canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d"), group = new Set(groupOf(this.rank, axis)), inset = at.cell >= 7 ? 1 : 0.4;
    pen.scale(ratio, ratio); pen.translate(PAD, PAD);
    const colours = Array.from({ length: axis.size }, (_, i) => memberColour(i, axis.size)), labelled = at.cell >= 19;
    pen.font = `600 ${Math.min(Math.floor(at.cell / 2.1), 13)}px system-ui, sans-serif`; pen.textAlign = "center"; pen.textBaseline = "middle";
    for (let rank = 0; rank < grid.devices; rank += 1) {
      const [x, y] = corner(rank, at), member = coordinate(rank, axis);
      pen.fillStyle = colours[member]; pen.fillRect(x + inset, y + inset, at.cell - 2 * inset, at.cell - 2 * inset);
      if (labelled) { pen.fillStyle = "#0b0f14"; pen.fillText(member, x + at.cell / 2, y + at.cell / 2 + 0.5); }
    }
    this.outline(pen, at, group);
    this.drawnMs = performance.now() - began;
  }

  outline(pen, at, group) {
    const mark = (rank, wide, paint) => { const [x, y] = corner(rank, at); pen.strokeStyle = paint; pen.lineWidth = wide; pen.strokeRect(x + wide / 2, y + wide / 2, at.cell - wide, at.cell - wide); };
    for (const rank of group) if (rank < this.grid.devices) mark(rank, at.cell >= 12 ? 3 : 1.5, themed("--text"));
    mark(this.rank, at.cell >= 12 ? 5 : 2, themed("--text"));
  }
}
