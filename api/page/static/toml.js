// TOML as cluster and layers files use it: tables, arrays of tables, strings, numbers, booleans, arrays, inline tables.

/** A TOML text as an object; throws an Error that names the line. */
export function parseToml(text) {
  const root = {};
  let at = root;
  joined(text).forEach(({ line, number }) => {
    const many = /^\[\[([^\]]+)\]\]$/.exec(line), one = /^\[([^\]]+)\]$/.exec(line), pair = /^((?:[A-Za-z0-9_.-]|"[^"]*"|'[^']*')+)\s*=\s*(.+)$/s.exec(line);
    if (many || one) at = table(root, keys((many ?? one)[1]), Boolean(many));
    else if (pair) {
      const names = keys(pair[1]), reader = new Reader(pair[2], number), last = names.pop();
      table(at, names, false)[last] = reader.value();
      reader.end();
    } else throw new Error(`line ${number}: "${line.slice(0, 40)}" is neither key = value nor [table]`);
  });
  return root;
}

/** Lines without comments, those of an array that goes on put together. */
function joined(text) {
  const found = [];
  let open = "", first = 0;
  text.split("\n").forEach((raw, index) => {
    const line = uncommented(raw).trim();
    if (!line && !open) return;
    if (!open) first = index + 1;
    open = open ? `${open} ${line}` : line;
    const bare = open.replace(/"(?:[^"\\]|\\.)*"|'[^']*'/g, "");
    if (/^\[\[?[^\]]*\]\]?$/.test(bare.trim()) || depth(bare) <= 0) { found.push({ line: open, number: first }); open = ""; }
  });
  if (open) throw new Error(`line ${first}: a bracket is not closed`);
  return found;
}

function uncommented(line) {
  return line.replace(/("(?:[^"\\]|\\.)*"|'[^']*')|#.*$/g, (_, quoted) => quoted ?? "");
}

function depth(text) {
  return [...text].reduce((sum, each) => sum + ("[{".includes(each) ? 1 : "]}".includes(each) ? -1 : 0), 0);
}

function keys(text) {
  return text.split(".").map((each) => each.trim().replace(/^["']|["']$/g, ""));
}

/** The table of some keys, made where it is missing; of an array of tables the last one. */
function table(root, names, many) {
  return names.reduce((at, name, index) => {
    if (many && index === names.length - 1) { (at[name] ??= []).push({}); return at[name].at(-1); }
    at[name] ??= {};
    return Array.isArray(at[name]) ? at[name].at(-1) : at[name];
  }, root);
}

class Reader {
  constructor(text, number) { this.text = text.trim(); this.number = number; }

  fail() { throw new Error(`line ${this.number}: "${this.text.slice(0, 40)}" is no value; text stands in quotes`); }
  end() { if (this.text) this.fail(); }
  take(count) { const part = this.text.slice(0, count); this.text = this.text.slice(count).trimStart(); return part; }

  value() {
    if (this.text[0] === "[") return this.items("]", [], (made) => made.push(this.value()));
    if (this.text[0] === "{") return this.items("}", {}, (made) => { const [whole, name] = /^([A-Za-z0-9_"'-]+)\s*=\s*/.exec(this.text) ?? this.fail(); this.take(whole.length); made[keys(name)[0]] = this.value(); });
    const quoted = /^("(?:[^"\\]|\\.)*")|^'([^']*)'/.exec(this.text);
    if (quoted) { this.take(quoted[0].length); return quoted[1] === undefined ? quoted[2] : JSON.parse(quoted[1]); }
    const word = /^[^,\]}\s]+/.exec(this.text)?.[0] ?? this.fail(), number = Number(word.replaceAll("_", ""));
    if (word !== "true" && word !== "false" && Number.isNaN(number)) this.fail();
    this.take(word.length);
    return word === "true" ? true : word === "false" ? false : number;
  }

  items(close, made, one) {
    this.take(1);
    while (this.text && this.text[0] !== close) { one(made); if (this.text[0] === ",") this.take(1); else if (this.text[0] !== close) this.fail(); }
    if (!this.text) this.fail();
    this.take(1);
    return made;
  }
}
