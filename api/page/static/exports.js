// The plan as settings of a training framework, to copy or save.

import { card, el, fill, tabs } from "/page/base.js";
import { ask } from "/page/client.js";
import { field, select } from "/page/fields.js";
import { problemNote } from "/page/problems.js";

const FORMATS = ["megatron", "bridge", "nemo", "torchtitan", "deepspeed", "accelerate", "fsdp2"];
const OF_ENGINE = { megatron: "megatron", torchtitan: "torchtitan", deepspeed: "deepspeed", fsdp2: "fsdp2", fsdp1: "accelerate" };

/** The card; `source` gives the plan, `plan` the whole document for saving. */
export function exportsCard(source, engine, plan) {
  const out = el("div", { class: "stack", "aria-live": "polite" });
  const choice = select(FORMATS, OF_ENGINE[engine] ?? "megatron", { id: "export-format" });
  const show = () => write(source, choice.value, out);
  choice.addEventListener("change", show);
  const buttons = el("div", { class: "row low" }, field("Framework", choice), el("button", { type: "button", id: "export-show", onclick: show }, "Show the settings"), el("button", { type: "button", onclick: () => save("plan.json", JSON.stringify(plan(), null, 1)) }, "Save plan.json"));
  return card("export", "Use it", "The same layout in the words of your framework, with a launch script; plan.json is what the planner's other commands read.", buttons, out);
}

async function write(source, format, out) {
  fill(out, el("p", { role: "status" }, el("span", { class: "busy" }), " Writing …"));
  try { fill(out, files(await ask("POST", "/v1/exports", { ...source(), format }))); } catch (problem) { fill(out, problemNote(problem, () => write(source, format, out))); }
}

function files(made) {
  const shown = el("div", { class: "stack" });
  const show = (path) => fill(shown, one(made.files.find((each) => each.path === path)));
  show(made.files[0].path);
  const losses = made.losses ?? [];
  return el(
    "div", { class: "stack" }, losses.length ? el("div", { class: "note warn" }, el("strong", {}, "What these settings cannot say"), el("ul", {}, losses.map((each) => el("li", {}, typeof each === "string" ? each : JSON.stringify(each))))) : null,
    tabs("Files", made.files.map((each) => [each.path, each.path]), made.files[0].path, show), shown,
  );
}

function one(file) {
  const button = el("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copy(file.content);
    fill(button, done ? "Copied" : "Select and copy by hand");
    setTimeout(() => fill(button, "Copy"), 1600);
  });
  return el("div", { class: "stack" }, el("div", { class: "row" }, el("code", {}, file.path), button, el("button", { type: "button", onclick: () => save(file.path.split("/").at(-1), file.content) }, "Save")), el("pre", { class: "file", tabindex: "0" }, file.content));
}

async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { return false; }
}

/** Hands a text to the browser as a download. */
export function save(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/octet-stream" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
