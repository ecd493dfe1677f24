// The question: a model, a cluster, a job; chosen, pasted or drawn.

import { el, fill, tabs } from "/page/base.js";
import { ClusterInput } from "/page/cluster.js";
import { field, FormError, pasted, pinsOf, scalar, select, wholeOf } from "/page/fields.js";

export const EXAMPLES = [
  { name: "70B on 64 H100", model: { kind: "catalog", name: "llama-3.1-70b" }, cluster: { kind: "preset", name: "dgx-h100", devices: 64 }, job: { seq_len: 8192, global_batch: 512, precision: "bf16", engine: "megatron", optimizer: "adamw" } },
  { name: "8B on one node", model: { kind: "catalog", name: "llama-3.1-8b" }, cluster: { kind: "preset", name: "dgx-h100", devices: 8 }, job: { seq_len: 4096, global_batch: 64, precision: "bf16", engine: "fsdp2", optimizer: "adamw" } },
  { name: "Mixture of experts", model: { kind: "catalog", name: "mixtral-8x7b" }, cluster: { kind: "preset", name: "dgx-h100", devices: 64 }, job: { seq_len: 4096, global_batch: 256, precision: "bf16", engine: "megatron", optimizer: "adamw" } },
  { name: "ResNet-50", model: { kind: "catalog", name: "resnet-50" }, cluster: { kind: "preset", name: "dgx-a100", devices: 16 }, job: { global_batch: 2048, precision: "bf16", engine: "ddp", optimizer: "sgd" } },
  { name: "Too large", model: { kind: "catalog", name: "llama-3.1-405b" }, cluster: { kind: "preset", name: "dgx-a100", devices: 16 }, job: { seq_len: 8192, global_batch: 64, precision: "bf16", engine: "megatron", optimizer: "adamw" } },
];
const PRECISIONS = ["bf16", "fp8", "mxfp8", "nvfp4", "fp16", "tf32", "fp32"];
const OPTIMIZERS = ["adamw", "adam8bit", "sgd", "adafactor", "muon"];
const OBJECTIVES = [{ value: "step_time", text: "the shortest step" }, { value: "devices", text: "the fewest devices" }, { value: "memory", text: "the least memory" }, { value: "batch", text: "the largest batch" }, { value: "seq_len", text: "the longest sequence" }];
const ENGINES = ["megatron", "fsdp2", "torchtitan", "deepspeed", "fsdp1", "ddp", "torch", "parameter_server"];

/** The form; `submit(request)` is called with a PlanRequest, `fail(error)` with what cannot be read. */
export class QuestionForm {
  constructor(form, submit, fail) {
    this.form = form; this.fail = fail;
    this.cluster = new ClusterInput();
    this.parts();
    form.addEventListener("submit", (event) => { event.preventDefault(); this.send(submit); });
    this.set(EXAMPLES[0]);
  }

  parts() {
    this.name = el("input", { type: "search", list: "models", id: "model-name", autocomplete: "off", spellcheck: "false" });
    this.models = el("datalist", { id: "models" });
    this.config = el("textarea", { id: "model-config", spellcheck: "false", placeholder: '{"model_type": "llama", "hidden_size": 4096, …}' });
    this.file = el("input", { type: "file", accept: ".json,.toml,application/json", class: "small", "aria-label": "Open a config.json" });
    this.file.addEventListener("change", async () => { if (this.file.files[0]) this.config.value = await this.file.files[0].text(); });
    this.seq = el("input", { type: "number", id: "job-seq", min: "1", step: "1" });
    this.batch = el("input", { type: "number", id: "job-batch", min: "1", step: "1", required: true });
    this.precision = select(PRECISIONS, "bf16", { id: "job-precision" });
    this.engine = select(ENGINES, "megatron", { id: "job-engine" });
    this.optimizer = select(OPTIMIZERS, "adamw", { id: "job-optimizer" });
    this.pins = el("input", { type: "text", id: "search-pins", placeholder: "tp=8, mbs=1,2", spellcheck: "false", autocomplete: "off" });
    this.options = el("textarea", { id: "job-options", spellcheck: "false", placeholder: "engine.attention=flash\njob.moe_imbalance=1.2", style: { "min-height": "70px" } });
    this.objective = select(OBJECTIVES, "step_time", { id: "search-objective" });
    this.limit = el("input", { type: "number", id: "search-seconds", min: "1", max: "600", value: "60" });
    this.button = el("button", { type: "submit", class: "primary", id: "ask" }, "Find the best plan");
    this.modelPart = el("div", { class: "stack" });
    this.modelTabs = el("div");
    fill(
      this.form, el("fieldset", {}, el("legend", {}, "Try"), el("div", { class: "chips" }, EXAMPLES.map((each) => el("button", { type: "button", onclick: () => { this.set(each); this.form.requestSubmit(); } }, each.name)))),
      el("fieldset", {}, el("legend", {}, "Model"), this.modelTabs, this.modelPart), this.cluster.node, this.jobPart(), el("div", { class: "submit" }, this.button),
    );
  }

  jobPart() {
    const more = el("details", { class: "numbers" }, el("summary", {}, "More"), el("div", { class: "stack" }, field("What to make best", this.objective), field("Optimizer", this.optimizer), field("Fix knobs (pins)", this.pins), field("Options, one a line", this.options), field("Seconds to search", this.limit)));
    return el("fieldset", {}, el("legend", {}, "Training"), el("div", { class: "two" }, field("Sequence length", this.seq), field("Sequences a step", this.batch), field("Precision", this.precision), field("Framework", this.engine)), more);
  }

  modelKind(kind) {
    this.kind = kind;
    fill(this.modelTabs, tabs("How the model is given", [["catalog", "Catalog"], ["config", "config.json"]], kind, (value) => this.modelKind(value)));
    fill(this.modelPart, kind === "catalog" ? [field("Name", this.name), this.models] : [field("Paste a config.json, or a layers file", this.config), this.file]);
  }

  setModels(items) { fill(this.models, items.map((each) => el("option", { value: each.name }))); }

  /** Shows a question. */
  set(question) {
    this.modelKind(question.model.kind === "catalog" ? "catalog" : "config");
    if (question.model.kind === "catalog") this.name.value = question.model.name;
    else this.config.value = JSON.stringify(question.model.config ?? question.model.spec, null, 1);
    this.cluster.set(question.cluster);
    const { job } = question;
    this.seq.value = job.seq_len ?? ""; this.batch.value = job.global_batch; this.precision.value = job.precision; this.engine.value = job.engine.split("@")[0]; this.optimizer.value = job.optimizer ?? "adamw";
    this.options.value = Object.entries(job.options ?? {}).map(([key, value]) => `${key}=${value}`).join("\n");
    this.pins.value = ""; this.objective.value = "step_time";
  }

  /** The PlanRequest that the form holds; raises FormError where a field cannot be read. */
  request() {
    const job = { global_batch: wholeOf(this.batch, "Sequences a step"), precision: this.precision.value, engine: this.engine.value, optimizer: this.optimizer.value, options: optionsOf(this.options) };
    if (this.seq.value !== "") job.seq_len = wholeOf(this.seq, "Sequence length");
    const search = { objective: this.objective.value, top_k: 5, max_seconds: wholeOf(this.limit, "Seconds to search") };
    const pins = pinsOf(this.pins);
    if (Object.keys(pins).length) search.pins = pins;
    return { model: this.modelInput(), cluster: this.cluster.value(), job, search };
  }

  modelInput() {
    if (this.kind === "catalog") {
      if (!this.name.value.trim()) throw new FormError(this.name, "Name a model of the catalog, or paste its config.json");
      return { kind: "catalog", name: this.name.value.trim() };
    }
    const value = pasted(this.config, "The model");
    const layers = "layers" in value && !("model_type" in value);
    return layers ? { kind: "layers", spec: value } : { kind: "huggingface", config: value };
  }

  send(submit) {
    this.mark([]);
    let request;
    try { request = this.request(); } catch (error) {
      if (!(error instanceof FormError)) throw error;
      this.fail(error);
      this.flag(error.input, error.message);
      return;
    }
    submit(request);
  }

  /** Marks the fields that the pointers of a problem name. */
  mark(pointers) {
    for (const node of this.form.querySelectorAll("[aria-invalid]")) { node.removeAttribute("aria-invalid"); node.removeAttribute("aria-describedby"); }
    this.form.querySelector("#field-error")?.remove();
    const fields = { "/model": this.kind === "catalog" ? this.name : this.config, "/cluster": this.cluster.main(), "/job/seq_len": this.seq, "/job/global_batch": this.batch, "/job/precision": this.precision, "/job/engine": this.engine, "/job/optimizer": this.optimizer, "/job/options": this.options, "/search/pins": this.pins, "/search/max_seconds": this.limit };
    for (const pointer of pointers) for (const [start, input] of Object.entries(fields)) if (pointer.startsWith(start)) this.flag(input);
  }

  /** Marks a field, and says below it what is wrong. */
  flag(input, message) {
    input?.setAttribute("aria-invalid", "true");
    if (!input?.isConnected || !message) return;
    input.setAttribute("aria-describedby", "field-error");
    input.after(el("span", { id: "field-error", class: "field-error" }, message));
    input.focus({ preventScroll: false });
  }

  busy(working) { this.button.disabled = working; fill(this.button, working ? "Searching …" : "Find the best plan"); }
}

function optionsOf(input) {
  const made = {};
  for (const line of input.value.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [key, ...rest] = line.split("=");
    if (rest.length === 0) throw new FormError(input, `option "${line}" has no value; write key=value`);
    made[key.trim()] = scalar(rest.join("=").trim());
  }
  return made;
}
