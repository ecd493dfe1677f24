// All views of one strategy, in the order in which they are read; the page and the report share them.

import { answerCard } from "./answer.js";
import { breakdownCard } from "./breakdown.js";
import { gridCard } from "./grid.js";
import { layoutCard } from "./layout.js";
import { memoryCard } from "./memory.js";
import { timelineCard } from "./timeline.js";

/** Cards by name; `result` is the answer of the search, where there was one. */
export function viewCards(view, result, title) {
  return {
    plan: answerCard(view, result, title), layout: layoutCard(view), memory: memoryCard(view), time: breakdownCard(view),
    timeline: timelineCard(view), grid: gridCard(view),
  };
}
