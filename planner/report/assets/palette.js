// What has which colour, in every view the same, and the pattern that says it without colour.

import { themed } from "./base.js";

export const MEMORY_CAUSES = ["weights", "gradients", "optimizer", "activations", "transient", "workspaces"];
export const TIME_CAUSES = [
  "compute", "tp_communication", "cp_communication", "ep_communication", "pp_communication", "pp_bubble",
  "dp_communication", "optimizer", "other",
];
const COLOURS = {
  weights: "--c1", gradients: "--c2", optimizer: "--c3", activations: "--c4", transient: "--c5", workspaces: "--c8",
  compute: "--c1", tp_communication: "--c5", cp_communication: "--c4", ep_communication: "--c6",
  pp_communication: "--c2", pp_bubble: "--line-strong", dp_communication: "--c7", other: "--c8",
  tp: "--c5", cp: "--c4", ep: "--c6", pp: "--c2", dp: "--c7", expert_dp: "--c7", dp_shard: "--c7", dp_replicate: "--c3",
  forward: "--c1", backward: "--c3", input_gradient: "--c3", weight_gradient: "--c4", reduction: "--c7",
  illegal: "--c8", out_of_memory: "--c5", bounded: "--c1", solved: "--c3", open: "--c4",
};
const DECALS = [
  { symbol: "none" },
  { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: -Math.PI / 4 },
  { symbol: "circle", dashArrayX: [[6, 6], [0, 6, 6, 0]], dashArrayY: [6, 0], symbolSize: 0.55 },
  { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: Math.PI / 4 },
  { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5] },
  { symbol: "triangle", dashArrayX: [[8, 8], [0, 8, 8, 0]], dashArrayY: [8, 2], symbolSize: 0.6 },
  { symbol: "rect", dashArrayX: [2, 4], dashArrayY: [1, 0] },
  { symbol: "rect", dashArrayX: [[5, 5], [0, 5, 5, 0]], dashArrayY: [5, 0], symbolSize: 0.5 },
  { symbol: "circle", dashArrayX: [[3, 3], [0, 3, 3, 0]], dashArrayY: [3, 0], symbolSize: 0.8 },
];
const NAMES = {
  tp: "Tensor parallel", cp: "Context parallel", ep: "Expert parallel", pp: "Pipeline", dp: "Data parallel",
  expert_dp: "Data parallel of experts", dp_shard: "Sharded data parallel", dp_replicate: "Replicas",
  pp_bubble: "waiting (bubble)", tp_communication: "tensor-parallel messages", cp_communication: "context-parallel messages",
  ep_communication: "expert messages", pp_communication: "pipeline sends", dp_communication: "data-parallel messages",
};

export function colour(key) {
  return themed(COLOURS[key] ?? "--c8");
}

export function colourVariable(key) {
  return `var(${COLOURS[key] ?? "--c8"})`;
}

/** The pattern of the n-th series of a stack. */
export function decal(index) {
  const dark = document.documentElement.dataset.theme === "dark";
  return { ...DECALS[index % DECALS.length], color: dark ? "rgba(10,14,20,.55)" : "rgba(255,255,255,.62)" };
}

export function nameOf(key) {
  return NAMES[key] ?? String(key).replaceAll("_", " ");
}

/** A colour of the i-th of n members of an axis: few are told apart by hue, many run through a scale. */
export function memberColour(index, count) {
  const dark = document.documentElement.dataset.theme === "dark";
  if (count <= 8) {
    const hue = [215, 25, 150, 45, 285, 190, 350, 95][index % 8];
    return `hsl(${hue} ${dark ? 48 : 58}% ${dark ? 52 : 60}%)`;
  }
  const part = count > 1 ? index / (count - 1) : 0;
  return `hsl(${250 - 220 * part} ${dark ? 50 : 65}% ${(dark ? 54 : 58) + 18 * part}%)`; // light enough for a dark number
}
