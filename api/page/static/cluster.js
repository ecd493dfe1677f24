// The cluster: a preset with a number of devices, one that is drawn node by node, or a pasted description.

import { el, fill, svg, tabs, three } from "/page/base.js";
import { field, FormError, pasted, select, wholeOf } from "/page/fields.js";

const SHOWN = 12, KINDS = ["var(--c1)", "var(--c7)", "var(--c3)", "var(--c6)"];

/** One kind of node of a drawn cluster: its device, how many nodes, how many devices in each. */
class NodeKind {
  constructor(change, first) {
    const id = (name) => (first ? `draw-${name}` : null);
    const name = first ? "h100-sxm-80gb" : "a100-sxm-80gb";
    this.device = select([name], name, { id: id("device") });
    this.nodes = el("input", { type: "number", min: "1", value: first ? "4" : "2", id: id("nodes") });
    this.perNode = el("input", { type: "number", min: "1", value: "8", id: id("per-node") });
    for (const input of [this.device, this.nodes, this.perNode]) input.addEventListener("input", change);
  }

  offer(devices) {
    const chosen = this.device.value;
    fill(this.device, devices.map((each) => el("option", { value: each.name }, each.title ?? each.name)));
    this.device.value = chosen;
  }

  fields(remove) {
    return [field("Device", this.device), el("div", { class: "two" }, field("Nodes", this.nodes), field("Devices a node", this.perNode)), remove ? el("div", {}, el("button", { type: "button", class: "icon small", onclick: remove }, "Take this kind away")) : null];
  }

  counts() { return { nodes: Number(this.nodes.value) || 1, perNode: Number(this.perNode.value) || 1 }; }
  group() { return { device: this.device.value, nodes: wholeOf(this.nodes, "Nodes"), devices_per_node: wholeOf(this.perNode, "Devices a node") }; }
}

export class ClusterInput {
  constructor() {
    this.preset = select([{ value: "dgx-h100", text: "dgx-h100" }], "dgx-h100", { id: "cluster-name" });
    this.devices = el("input", { type: "number", id: "cluster-devices", min: "1", step: "1", value: "64" });
    this.kinds = [new NodeKind(() => this.draw(), true)]; this.known = [];
    this.inside = el("input", { type: "number", min: "0.1", step: "any", value: "450", id: "draw-inside" });
    this.between = el("input", { type: "number", min: "0.1", step: "any", value: "50", id: "draw-between" });
    this.spec = el("textarea", { id: "cluster-spec", spellcheck: "false", placeholder: 'name = "ours"\n\n[[groups]]\ndevice = "a100-sxm-80gb"\nnodes = 4\ndevices_per_node = 8\n\n[[tiers]]\nname = "nvlink"\nbytes_per_s = "300 GB/s"\nlatency_s = "2 us"\n\n[[tiers]]\nname = "infiniband"\nbytes_per_s = "200 Gb/s"\nlatency_s = "5 us"', style: { "min-height": "210px" } });
    this.tabs = el("div"); this.part = el("div", { class: "stack" }); this.picture = el("div");
    this.node = el("fieldset", {}, el("legend", {}, "Cluster"), this.tabs, this.part);
    this.about = {};
    for (const input of [this.preset, this.devices, this.inside, this.between]) input.addEventListener("input", () => this.draw());
  }

  setCatalog(clusters, devices) {
    const chosen = this.preset.value;
    fill(this.preset, clusters.map((each) => el("option", { value: each.name }, each.name)));
    this.preset.value = chosen;
    this.known = devices;
    for (const kind of this.kinds) kind.offer(devices);
    this.about = Object.fromEntries(clusters.map((each) => [each.name, each]));
    this.draw();
  }

  show(kind) {
    this.kind = kind;
    fill(this.tabs, tabs("How the cluster is given", [["preset", "Preset"], ["draw", "Draw"], ["spec", "Paste"]], kind, (value) => this.show(value)));
    const parts = {
      preset: () => [el("div", { class: "two" }, field("Kind of node", this.preset), field("Devices", this.devices)), this.picture],
      draw: () => [this.kinds.map((each, index) => each.fields(index ? () => this.without(index) : null)), el("div", { class: "two" }, field("Inside, GB/s", this.inside), field("Between, GB/s", this.between)), this.picture],
      spec: () => [field("A cluster file, TOML or JSON", this.spec)],
    };
    fill(this.part, parts[kind]());
    this.draw();
  }

  /** Another kind of node, as in a cluster that grew over the years. */
  another() {
    const kind = new NodeKind(() => this.draw(), false);
    if (this.known.length) kind.offer(this.known);
    this.kinds.push(kind);
    this.show("draw");
  }

  without(index) { this.kinds.splice(index, 1); this.show("draw"); }

  set(cluster) {
    if (cluster.kind === "spec") this.spec.value = JSON.stringify(cluster.spec, null, 1);
    else {
      if (![...this.preset.options].some((each) => each.value === cluster.name)) this.preset.append(el("option", { value: cluster.name }, cluster.name));
      this.preset.value = cluster.name; this.devices.value = cluster.devices ?? 8;
    }
    this.show(cluster.kind === "spec" ? "spec" : "preset");
  }

  main() { return { preset: this.preset, draw: this.kinds[0].nodes, spec: this.spec }[this.kind]; }

  value() {
    if (this.kind === "preset") return { kind: "preset", name: this.preset.value, devices: wholeOf(this.devices, "Devices") };
    if (this.kind === "spec") return { kind: "spec", spec: pasted(this.spec, "The cluster") };
    const rate = (input) => { const value = Number(input.value); if (!(value > 0)) throw new FormError(input, `"${input.value}" GB/s is no rate; give more than 0`); return value * 1e9; };
    const tiers = [{ name: "inside", bytes_per_s: rate(this.inside), latency_s: 2e-6 }, { name: "network", bytes_per_s: rate(this.between), latency_s: 4e-6 }];
    return { kind: "spec", spec: { name: "drawn", groups: this.kinds.map((each) => each.group()), tiers } };
  }

  draw() {
    if (this.kind === "spec" || !this.kind) return;
    if (this.kind === "draw") {
      const kinds = this.kinds.map((each) => each.counts()), total = kinds.reduce((sum, each) => sum + each.nodes * each.perNode, 0);
      fill(this.picture, picture({ kinds, total, rates: [Number(this.inside.value), Number(this.between.value)] }), this.buttons());
      return;
    }
    const known = this.about[this.preset.value], perNode = known?.devices_per_node ?? 8, total = Number(this.devices.value) || 1;
    fill(this.picture, picture({ kinds: [{ nodes: Math.ceil(total / perNode), perNode }], total, rates: (known?.tiers ?? []).map((each) => each.bytes_per_s / 1e9) }));
  }

  buttons() {
    const last = this.kinds.at(-1), by = (count) => { last.nodes.value = String(Math.max(last.counts().nodes + count, 1)); this.draw(); };
    return el("div", { class: "row" }, el("button", { type: "button", class: "icon", onclick: () => by(1) }, "+ node"), el("button", { type: "button", class: "icon", onclick: () => by(-1) }, "− node"), this.kinds.length < KINDS.length ? el("button", { type: "button", class: "icon", onclick: () => this.another() }, "+ another kind") : null);
  }
}

/** Nodes as boxes of devices on one network. */
function picture(at) {
  const nodes = at.kinds.flatMap((each, kind) => Array.from({ length: Math.min(each.nodes, SHOWN) }, () => ({ perNode: each.perNode, kind }))).slice(0, SHOWN);
  const columns = Math.min(nodes.length, 6), rows = Math.ceil(nodes.length / columns), side = 280, wide = side / columns, tall = 40, count = at.kinds.reduce((sum, each) => sum + each.nodes, 0);
  const made = svg("svg", { viewBox: `0 0 ${side} ${rows * tall + 14}`, class: "strip", role: "img", "aria-label": `${count} nodes, ${at.total} devices` });
  made.append(svg("line", { x1: 6, y1: rows * tall + 6, x2: side - 6, y2: rows * tall + 6, style: { stroke: "var(--line-strong)", "stroke-width": "3" } }));
  let left = at.total;
  nodes.forEach((node, index) => {
    made.append(...nodeOf(node, { x: (index % columns) * wide, y: Math.floor(index / columns) * tall, wide, bottom: rows * tall + 6 }, Math.min(node.perNode, left)));
    left -= node.perNode;
  });
  const rates = at.rates.filter((each) => each > 0).map((each) => `${three(each)} GB/s`).join(" inside, "), sizes = at.kinds.map((each) => `${each.nodes.toLocaleString("en-US")} node${each.nodes === 1 ? "" : "s"} of ${each.perNode}`).join(" and ");
  return [made, el("p", { class: "small soft" }, `${at.total.toLocaleString("en-US")} devices, ${sizes}${count > SHOWN ? `, ${SHOWN} shown` : ""}${rates ? `; ${rates}${at.rates.length > 1 ? " between" : ""}` : ""}`)];
}

function nodeOf(node, place, devices) {
  const { x, y, wide, bottom } = place, dots = Math.max(Math.min(devices, 16), 0), across = dots > 8 ? 8 : Math.max(Math.min(dots, 4), 1), size = Math.min((wide - 10) / across, 10);
  const squares = Array.from({ length: dots }, (_, i) => svg("rect", { x: x + 5 + (i % across) * size, y: y + 6 + Math.floor(i / across) * 11, width: size - 1.6, height: 9, rx: 1.5, style: { fill: KINDS[node.kind] } }));
  return [
    svg("line", { x1: x + wide / 2, y1: y + 32, x2: x + wide / 2, y2: bottom, style: { stroke: "var(--line)", "stroke-width": "1.5" } }),
    svg("rect", { x: x + 2, y: y + 2, width: wide - 4, height: 30, rx: 4, style: { fill: "var(--raised)", stroke: "var(--line-strong)" } }), ...squares,
  ];
}
