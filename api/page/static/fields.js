// Fields of the form, and reading them.

import { el } from "/page/base.js";
import { parse as parseToml } from "/page/smol_toml.min.js";

/** A field with a label. */
export function field(label, input, props = {}) {
  return el("label", props, label, input);
}

export function select(options, value, props = {}) {
  const made = el("select", props, options.map((each) => el("option", { value: each.value ?? each }, each.text ?? each)));
  made.value = value;
  return made;
}

/** A field that cannot be read. */
export class FormError extends Error {
  constructor(input, message) { super(message); this.input = input; }
}

export function wholeOf(input, name) {
  const value = Number(input.value);
  if (!Number.isInteger(value) || value < 1) throw new FormError(input, `${name}: ${input.value.trim() === "" ? "nothing" : `"${input.value}"`} is given; write a whole number, 1 or more`);
  return value;
}

/** What a pasted file says, JSON or TOML. */
export function pasted(input, name) {
  const text = input.value.trim();
  if (text === "") throw new FormError(input, `${name} is empty; paste the whole file, or open it`);
  let value;
  try { value = /^\{|^\[(?!\[?\s*[A-Za-z_"])/.test(text) ? JSON.parse(text) : parseToml(text); } catch (error) { throw new FormError(input, `${name} does not parse (${error.line ? `line ${error.line}: ` : ""}${error.message.split("\n")[0]}); paste the whole file`); }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new FormError(input, `${name} is no JSON object; paste the whole file, braces included`);
  return value;
}

/** true, 8, 1.5 or text. */
export function scalar(text) {
  if (text === "true" || text === "false") return text === "true";
  return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
}

/** `tp=8, mbs=1,2` as an object; a comma belongs to a value unless a key follows it. */
export function pinsOf(input) {
  const made = {};
  for (const part of input.value.split(/,(?=\s*[a-z_]+\s*=)|;|\n/).map((each) => each.trim()).filter(Boolean)) {
    const [name, ...rest] = part.split("=");
    if (rest.length === 0) throw new FormError(input, `pin "${part}" has no value; write tp=8`);
    made[name.trim()] = scalar(rest.join("=").trim());
  }
  return made;
}
