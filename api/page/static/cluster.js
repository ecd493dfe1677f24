// The cluster: a preset with a number of devices, one that is drawn node by node, or a pasted description.

import { el, fill, svg, tabs, three } from "/page/base.js";
import { field, FormError, jsonOf, select, wholeOf } from "/page/fields.js";

const SHOWN = 12;

export class ClusterInput {
  constructor() {
    this.preset = select([{ value: "dgx-h100", text: "dgx-h100" }], "dgx-h100", { id: "cluster-name" });
    this.devices = el("input", { type: "number", id: "cluster-devices", min: "1", step: "1", value: "64" });
    this.device = select(["h100-sxm-80gb"], "h100-sxm-80gb", { id: "draw-device" });
    this.nodes = el("input", { type: "number", min: "1", value: "4", id: "draw-nodes" });
    this.perNode = el("input", { type: "number", min: "1", value: "8", id: "draw-per-node" });
    this.inside = el("input", { type: "number", min: "0.1", step: "any", value: "450", id: "draw-inside" });
    this.between = el("input", { type: "number", min: "0.1", step: "any", value: "50", id: "draw-between" });
    this.spec = el("textarea", { id: "cluster-spec", spellcheck: "false", placeholder: '{"name": "mine", "groups": […], "tiers": […]}' });
    this.tabs = el("div"); this.part = el("div", { class: "stack" }); this.picture = el("div");
    this.node = el("fieldset", {}, el("legend", {}, "Cluster"), this.tabs, this.part);
    this.about = {};
    for (const input of [this.preset, this.devices, this.device, this.nodes, this.perNode, this.inside, this.between]) input.addEventListener("input", () => this.draw());
  }

  setCatalog(clusters, devices) {
    const chosen = this.preset.value, drawn = this.device.value;
    fill(this.preset, clusters.map((each) => el("option", { value: each.name }, each.name)));
    fill(this.device, devices.map((each) => el("option", { value: each.name }, each.title ?? each.name)));
    this.preset.value = chosen; this.device.value = drawn;
    this.about = Object.fromEntries(clusters.map((each) => [each.name, each]));
    this.draw();
  }

  show(kind) {
    this.kind = kind;
    fill(this.tabs, tabs("How the cluster is given", [["preset", "Preset"], ["draw", "Draw"], ["spec", "Paste"]], kind, (value) => this.show(value)));
    const parts = {
      preset: [el("div", { class: "two" }, field("Kind of node", this.preset), field("Devices", this.devices)), this.picture],
      draw: [field("Device", this.device), el("div", { class: "two" }, field("Nodes", this.nodes), field("Devices a node", this.perNode), field("Inside, GB/s", this.inside), field("Between, GB/s", this.between)), this.picture],
      spec: [field("A cluster file as JSON", this.spec)],
    };
    fill(this.part, parts[kind]);
    this.draw();
  }

  set(cluster) {
    if (cluster.kind === "spec") this.spec.value = JSON.stringify(cluster.spec, null, 1);
    else {
      if (![...this.preset.options].some((each) => each.value === cluster.name)) this.preset.append(el("option", { value: cluster.name }, cluster.name));
      this.preset.value = cluster.name; this.devices.value = cluster.devices ?? 8;
    }
    this.show(cluster.kind === "spec" ? "spec" : "preset");
  }

  main() { return { preset: this.preset, draw: this.nodes, spec: this.spec }[this.kind]; }

  value() {
    if (this.kind === "preset") return { kind: "preset", name: this.preset.value, devices: wholeOf(this.devices, "Devices") };
    if (this.kind === "spec") return { kind: "spec", spec: jsonOf(this.spec, "The cluster") };
    const rate = (input) => { const value = Number(input.value); if (!(value > 0)) throw new FormError(input, `"${input.value}" GB/s is no rate; give more than 0`); return value * 1e9; };
    const tiers = [{ name: "inside", bytes_per_s: rate(this.inside), latency_s: 2e-6 }, { name: "network", bytes_per_s: rate(this.between), latency_s: 4e-6 }];
    return { kind: "spec", spec: { name: "drawn", groups: [{ device: this.device.value, nodes: wholeOf(this.nodes, "Nodes"), devices_per_node: wholeOf(this.perNode, "Devices a node") }], tiers } };
  }

  draw() {
    if (this.kind === "spec" || !this.kind) return;
    const known = this.about[this.preset.value], drawn = this.kind === "draw";
    const perNode = drawn ? Number(this.perNode.value) || 1 : known?.devices_per_node ?? 8, nodes = drawn ? Number(this.nodes.value) || 1 : Math.ceil((Number(this.devices.value) || 1) / perNode);
    const rates = drawn ? [Number(this.inside.value), Number(this.between.value)] : (known?.tiers ?? []).map((each) => each.bytes_per_s / 1e9);
    const total = drawn ? nodes * perNode : Number(this.devices.value) || 1;
    fill(this.picture, picture({ nodes, perNode, rates, total }, drawn ? (by) => { this.nodes.value = String(Math.max(nodes + by, 1)); this.draw(); } : null));
  }
}

/** Nodes as boxes of devices on one network; with `change`, nodes are added and taken away. */
function picture(at, change) {
  const shown = Math.min(at.nodes, SHOWN), columns = Math.min(shown, 6), rows = Math.ceil(shown / columns), side = 280, wide = side / columns, tall = 40;
  const made = svg("svg", { viewBox: `0 0 ${side} ${rows * tall + 22}`, class: "strip", role: "img", "aria-label": `${at.nodes} nodes of ${at.perNode} devices` });
  made.append(svg("line", { x1: 6, y1: rows * tall + 6, x2: side - 6, y2: rows * tall + 6, style: { stroke: "var(--line-strong)", "stroke-width": "3" } }));
  for (let node = 0; node < shown; node += 1) {
    const x = (node % columns) * wide, y = Math.floor(node / columns) * tall;
    made.append(svg("line", { x1: x + wide / 2, y1: y + 32, x2: x + wide / 2, y2: rows * tall + 6, style: { stroke: "var(--line)", "stroke-width": "1.5" } }));
    made.append(svg("rect", { x: x + 2, y: y + 2, width: wide - 4, height: 30, rx: 4, style: { fill: "var(--raised)", stroke: "var(--line-strong)" } }));
    const dots = Math.min(at.perNode, 16, Math.max(at.total - node * at.perNode, 0)), across = dots > 8 ? 8 : Math.max(Math.min(dots, 4), 1), size = Math.min((wide - 10) / across, 10);
    for (let i = 0; i < dots; i += 1) made.append(svg("rect", { x: x + 5 + (i % across) * size, y: y + 6 + Math.floor(i / across) * 11, width: size - 1.6, height: 9, rx: 1.5, style: { fill: "var(--c1)" } }));
  }
  const rest = at.nodes > SHOWN ? `, ${SHOWN} shown` : "";
  const rates = at.rates.filter((each) => each > 0).map((each) => `${three(each)} GB/s`).join(" inside, ");
  const text = el("p", { class: "small soft" }, `${at.total.toLocaleString("en-US")} devices, ${at.nodes.toLocaleString("en-US")} node${at.nodes === 1 ? "" : "s"} of ${at.perNode}${rest}${rates ? `; ${rates}${at.rates.length > 1 ? " between" : ""}` : ""}`);
  const buttons = change ? el("div", { class: "row" }, el("button", { type: "button", class: "icon", onclick: () => change(1) }, "+ node"), el("button", { type: "button", class: "icon", onclick: () => change(-1) }, "− node")) : null;
  return [made, buttons, text];
}
