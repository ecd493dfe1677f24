// The service as the page asks it: JSON in and out, errors as Problem, events as they come.

let key = recalled();

/** An error of the service, or that it cannot be reached (status 0). */
export class Problem extends Error {
  constructor(status, body = {}, retryAfter = null) {
    super(body.detail ?? "the server cannot be reached");
    this.status = status; this.code = String(body.type ?? "").split("/").at(-1) || "unreachable"; this.title = body.title ?? "";
    this.errors = body.errors ?? []; this.requestId = body.request_id ?? ""; this.retryAfter = retryAfter;
  }
}

export function setKey(value) {
  key = value;
  try { sessionStorage.setItem("planner-key", value); } catch { /* kept for this page only */ }
}

function recalled() {
  try { return sessionStorage.getItem("planner-key") ?? ""; } catch { return ""; }
}

function headers(extra) {
  return { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...extra };
}

/** One call; raises Problem. */
export async function ask(method, path, body, options = {}) {
  const sent = { method, headers: headers({ ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...options.headers }), signal: options.signal };
  if (body !== undefined) sent.body = JSON.stringify(body);
  let answer;
  try { answer = await fetch(path, sent); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0);
  }
  const text = await answer.text();
  const value = parsed(text);
  if (!answer.ok) throw new Problem(answer.status, value ?? { detail: text.slice(0, 200) || `status ${answer.status}` }, answer.headers.get("Retry-After"));
  return options.whole ? { status: answer.status, value } : value;
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}

/** Server-sent events of a path until it ends; `take(kind, data)`. Asks again from the last one when the line breaks. */
export async function events(path, take, signal) {
  let last = "", failures = 0;
  while (!signal.aborted && failures < 4) {
    try {
      const answer = await fetch(path, { headers: headers({ Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) }), signal });
      if (!answer.ok) throw new Problem(answer.status, parsed(await answer.text()) ?? {});
      failures = 0;
      const ended = await read(answer.body.getReader(), (event) => { last = event.id || last; return take(event.kind, event.data); });
      if (ended) return;
    } catch (error) {
      if (error.name === "AbortError" || (error instanceof Problem && error.status < 500)) throw error;
      failures += 1;
      await new Promise((resolve) => setTimeout(resolve, 400 * failures));
    }
  }
  if (!signal.aborted) throw new Problem(0);
}

async function read(reader, take) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    const pieces = (rest + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n").split("\n\n");
    rest = pieces.pop();
    for (const piece of pieces) {
      const event = eventOf(piece);
      if (event && (take(event) === "end" || event.kind === "end")) return true;
    }
  }
}

/** `{id, kind, data}` of one event's lines; null for a comment. */
export function eventOf(text) {
  const found = { id: "", kind: "message", data: "" };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon < 1) continue;
    const value = line.slice(colon + 1).trimStart(), name = line.slice(0, colon);
    if (name === "id") found.id = value; else if (name === "event") found.kind = value; else if (name === "data") found.data += value;
  }
  return found.data ? { ...found, data: parsed(found.data) ?? {} } : null;
}
