// The page: a question on the left, its answer on the right, all of it in the words of the service.

import { alternativesCard } from "/page/alternatives.js";
import { infeasibleCard } from "/page/answer.js";
import { accuracyCard } from "/page/accuracy.js";
import { el, fill, linkCards, themeButton } from "/page/base.js";
import { ask, events, Problem, setKey } from "/page/client.js";
import { exportsCard } from "/page/exports.js";
import { scalar } from "/page/fields.js";
import { QuestionForm } from "/page/form.js";
import { problemNote } from "/page/problems.js";
import { ended, progressCard } from "/page/progress.js";
import { runsCard } from "/page/runs.js";
import { changed, devicesOf, slidersCard } from "/page/sliders.js";
import { viewCards } from "/page/views.js";
import { whyNotCard } from "/page/whynot.js";

const NAV = [["plan", "Plan"], ["search", "Search"], ["whatif", "What if"], ["layout", "Split"], ["memory", "Memory"], ["time", "Time"], ["timeline", "Timeline"], ["grid", "Devices"], ["alternatives", "Alternatives"], ["whynot", "Why not"], ["export", "Export"], ["runs", "Runs"], ["accuracy", "Accuracy"]];

class App {
  constructor() {
    this.main = document.getElementById("main");
    this.nav = document.getElementById("nav");
    document.getElementById("tools").append(themeButton());
    this.stop = null;
    this.form = new QuestionForm(document.getElementById("form"), (request) => this.search(request), (error) => this.refuse(error));
    this.alert = el("div", { id: "alert" });
    this.answer = el("div", { class: "main", id: "answer" });
    fill(this.main, this.alert, this.answer);
  }

  async start() {
    const narrow = matchMedia("(max-width: 1080px)"), question = document.getElementById("question");
    question.open = !narrow.matches;
    narrow.addEventListener("change", () => { if (!narrow.matches) question.open = true; });
    const catalog = this.catalog(), example = await this.example();
    if (example) { await this.show({ ...example, stored: true }); this.whole(example); }
    await catalog;
  }

  /** The stored first answer: no search is needed to see what the planner says. */
  async example() {
    try { return await ask("GET", "/page/example.json"); } catch (problem) { this.refuse(problem); return null; }
  }

  /** The stored answer holds the beginning of its timeline; the service gives the rest, and its own numbers. */
  async whole(example) {
    const { model, cluster, job } = example.request, { strategy } = example.plan.result.best;
    let view;
    try { view = await ask("POST", "/v1/views", { model, cluster, job, strategy }); } catch { return; }
    if (this.laid !== this.shown || !this.shown.stored) return;
    const before = this.shown.views[0].evaluation, moved = before.step_s !== view.evaluation.step_s || before.memory.device_used_bytes !== view.evaluation.memory.device_used_bytes;
    this.shown.views[0] = view;
    if (moved) { this.shown.plan.result.best = view.evaluation; this.choose(0); }
    else document.querySelector("#timeline canvas")?.timeline.renew(view.timeline);
  }

  async catalog() {
    try {
      const [models, clusters, devices] = await Promise.all(["models", "clusters", "devices"].map((kind) => ask("GET", `/v1/catalog/${kind}`)));
      this.form.setModels(models.items);
      this.form.cluster.setCatalog(clusters.items, devices.items);
    } catch (problem) { this.refuse(problem); }
  }

  refuse(error) {
    const note = error instanceof Problem ? problemNote(error, () => this.form.form.requestSubmit()) : el("div", { class: "note bad", role: "alert" }, el("strong", {}, "This field cannot be read"), el("p", {}, error.message));
    if (error.status === 401) note.append(this.keyForm());
    fill(this.alert, note);
    this.form.mark((error.errors ?? []).map((each) => each.pointer ?? ""));
    this.alert.scrollIntoView({ block: "nearest" });
  }

  /** With a key, what was refused is asked again. */
  keyForm() {
    const input = el("input", { type: "password", id: "key", autocomplete: "off", "aria-label": "Key of this server" });
    return el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); setKey(input.value.trim()); fill(this.alert); this.start(); } }, input, el("button", { type: "submit" }, "Use this key"));
  }

  async search(request) {
    this.stop?.abort();
    this.stop = new AbortController();
    const { signal } = this.stop, began = performance.now(), progress = progressCard([], true);
    this.form.busy(true);
    if (matchMedia("(max-width: 1080px)").matches) document.getElementById("question").open = false;
    fill(this.alert);
    fill(this.answer, progress);
    this.links();
    window.scrollTo(0, 0);
    try {
      const first = await ask("POST", "/v1/plans", request, { headers: { Prefer: "wait=0" }, whole: true, signal });
      const plan = first.status === 202 ? await this.follow(first.value, progress, began, signal) : first.value;
      this.finish(request, plan, progress, (performance.now() - began) / 1000);
    } catch (error) {
      if (error.name === "AbortError") return;
      progress.remove();
      this.refuse(error);
    } finally { if (this.stop?.signal === signal) this.form.busy(false); }
  }

  /** Waits for a plan that is searched elsewhere, showing what comes. */
  async follow(plan, progress, began, signal) {
    const stop = el("button", { type: "button", id: "stop" }, "Stop this search");
    stop.addEventListener("click", async () => { stop.disabled = true; try { await ask("POST", `/v1/plans/${plan.id}/cancel`); } catch { /* it has just ended */ } });
    progress.append(stop);
    await events(`/v1/plans/${plan.id}/events`, (kind, data) => {
      const at = { ...(data.progress ?? data), at_s: (performance.now() - began) / 1000 };
      if (at.best_step_s !== undefined || at.lower_bound_s !== undefined) progress.add({ lower_bound_s: null, best_step_s: null, ...at });
      return kind;
    }, signal);
    return ask("GET", `/v1/plans/${plan.id}`, undefined, { signal });
  }

  finish(request, plan, progress, took) {
    if (plan.state === "cancelled" && plan.result === null) {
      progress.querySelector("#stop")?.remove();
      progress.finish("Stopped");
      fill(this.alert, el("div", { class: "note", role: "status" }, el("strong", {}, "The search was stopped"), el("p", {}, "Change the question or search again.")));
      return;
    }
    if (plan.state === "failed" || plan.result === null) {
      const why = plan.problem ?? { detail: `the search ended ${plan.state} without an answer` };
      throw new Problem(why.status ?? 500, why);
    }
    if (progress.events().length === 0) progress.add({ ...plan.progress, at_s: plan.result.certificate.wall_s ?? took });
    this.show({ plan, request, events: progress.events(), views: {} });
  }

  /** Shows an answer: `{plan, request, events, views}`; views are kept by the layout's index. */
  async show(shown) {
    const { result } = shown.plan;
    this.shown = { stored: false, ...shown, request: answered(shown.request, result.changes) };
    if (!result.best) { fill(this.answer, infeasibleCard(result, (change) => this.attempt(change)), progressCard(ended(shown.events, result), false, "How it was proved"), accuracyCard()); this.links(); return; }
    await this.choose(0);
  }

  /** Asks again with a change that would help; nothing where the change is not one of the form's. */
  attempt(change) {
    const { request } = this.shown, [key, value] = [change.slice(0, change.indexOf("=")), change.slice(change.indexOf("=") + 1)];
    const at = { devices: devicesIn(request), seq: request.job.seq_len, batch: request.job.global_batch };
    const moved = { devices: () => ({ ...request, ...changed(request, { ...at, devices: Number(value) }) }), global_batch: () => ({ ...request, ...changed(request, { ...at, batch: Number(value) }) }), seq_len: () => ({ ...request, ...changed(request, { ...at, seq: Number(value) }) }) }[key];
    const optional = /^(job|engine)\./.test(key) ? () => ({ ...request, job: { ...request.job, options: { ...request.job.options, [key]: scalar(value) } } }) : null;
    const made = (moved ?? optional)?.();
    return made ? () => { this.form.set(made); this.search(made); } : null;
  }

  candidates() { const { result } = this.shown.plan; return [result.best, ...result.alternatives]; }

  /** Shows one of the known layouts in every view. */
  async choose(index) {
    const { plan, views, request } = this.shown, candidates = this.candidates();
    try { views[index] ??= await ask("POST", "/v1/views", { model: request.model, cluster: request.cluster, job: request.job, strategy: candidates[index].strategy }); } catch (problem) { this.refuse(problem); return; }
    const cards = viewCards(views[index], index === 0 ? plan.result : null, index === 0 ? "The plan" : `Runner-up #${index + 1}`);
    const alternatives = alternativesCard(candidates, index, (other) => this.choose(other));
    if (this.laid !== this.shown) { this.lay(cards, alternatives); return; }
    const chosen = document.getElementById("alternatives")?.contains(document.activeElement); // whoever chose there stays there
    for (const [key, card] of Object.entries({ ...cards, alternatives })) document.getElementById(key)?.replaceWith(card);
    if (chosen) document.querySelector(`[data-pick="${index}"]`)?.focus({ preventScroll: true });
    this.links();
  }

  lay(cards, alternatives) {
    this.laid = this.shown;
    const { plan, request, events: seen } = this.shown, candidates = this.candidates(), { question } = this.shown.views[0];
    const source = () => ({ model: request.model, cluster: request.cluster, job: request.job, strategy: candidates[0].strategy });
    const engine = request.job.engine.split("@")[0];
    fill(
      this.answer, this.storedNote(), cards.plan, progressCard(ended(seen, plan.result)), slidersCard(request, question, candidates, (other) => { this.form.set(other); this.search(other); }),
      cards.layout, cards.memory, cards.time, cards.timeline, cards.grid, alternatives, whyNotCard(source, candidates[0].strategy),
      exportsCard(source, engine, () => plan), runsCard(() => (this.shown.stored ? null : plan.id), candidates[0].step_s), accuracyCard(), footer(plan),
    );
    this.links();
    performance.mark("answer");
  }

  storedNote() {
    if (!this.shown.stored) return null;
    return el("p", { class: "small soft", id: "stored" }, "An answer to begin with, kept from planner ", this.shown.plan.made_with.planner_version, ". Choose another question on the left, or press the button to search this one again.");
  }

  links() {
    linkCards(this.nav, NAV);
  }
}

/** The request that the best plan answers: an objective may have found another number of devices, or another batch. */
function answered(request, changes) {
  if (!changes) return request;
  const { job } = request, at = { devices: changes.devices ?? devicesIn(request), seq: changes.seq_len ?? job.seq_len, batch: changes.global_batch ?? job.global_batch };
  const made = { ...request, ...changed(request, at) };
  if (changes.reserve_bytes !== undefined) made.job = { ...made.job, options: { ...made.job.options, "job.reserve_bytes": changes.reserve_bytes } };
  return made;
}

function devicesIn(request) {
  return request.cluster.kind === "preset" ? request.cluster.devices : devicesOf(request.cluster.spec.groups);
}

function footer(plan) {
  const made = plan.made_with;
  return el("p", { class: "foot" }, `parallelism-planner ${made.planner_version}, profiles ${String(made.profiles_sha256).slice(0, 12)}. `, el("a", { href: "/openapi.json" }, "The same over HTTP"), ".");
}

const app = new App();
window.planner = app; // for the console of whoever wonders
app.start();
