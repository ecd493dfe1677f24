// A report: the views of one answer, drawn from the data that the file itself carries.

import { alternativesCard } from "./alternatives.js";
import { infeasibleCard } from "./answer.js";
import { el, linkCards, fill, themeButton } from "./base.js";
import { comparisonCard, contrastCard, explanationCard } from "./explained.js";
import { ended, progressCard } from "./progress.js";
import { viewCards } from "./views.js";

const NAV = [["plan", "Plan"], ["why", "Why"], ["search", "Search"], ["layout", "Split"], ["memory", "Memory"], ["time", "Time"], ["timeline", "Timeline"], ["grid", "Devices"], ["alternatives", "Alternatives"]];
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");

function show(index) {
  const { result, views, candidates } = data;
  if (!views.length) { fill(main, infeasibleCard(result), searched(), footer()); return links(); }
  const names = data.names ?? [], title = index === 0 ? data.title : names[index] ?? `Runner-up #${index + 1}`;
  const cards = viewCards(views[index], index === 0 ? result : null, title);
  const several = candidates.length > 1 ? alternativesCard(candidates, index, (other) => { if (other < views.length) show(other); }, names) : null;
  fill(main, cards.plan, index === 0 || data.comparison ? why() : null, index === 0 ? searched() : null, cards.layout, cards.memory, cards.time, cards.timeline, cards.grid, several, footer());
  return links();
}

/** What was found out about the plan beside its figures. */
function why() {
  if (data.comparison) return comparisonCard(data.comparison, data.names);
  if (data.contrast) return contrastCard(data.contrast);
  return data.explanation ? explanationCard(data.explanation) : null;
}

function searched() {
  if (data.events.length < 2) return null;
  return progressCard(ended(data.events, { ...data.result, best: data.candidates[0] }), false, data.candidates.length ? undefined : "How it was proved");
}

function links() {
  linkCards(document.getElementById("nav"), NAV);
}

function footer() {
  const made = data.made_with;
  return el("p", { class: "foot" }, `parallelism-planner ${made.planner_version}, profiles ${String(made.profiles_sha256).slice(0, 12)}${made.created_at ? `, ${made.created_at}` : ""}. The charts are drawn by Apache ECharts ${data.echarts} (Apache-2.0).`);
}

document.getElementById("tools").append(themeButton());
show(0);
