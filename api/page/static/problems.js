// Errors in words: what is wrong, where, and what to do about it.

import { el } from "/page/base.js";

const TITLES = {
  0: "The server does not answer", 400: "The request does not parse", 401: "This server wants a key", 403: "Not allowed", 404: "Not there", 409: "Not now", 413: "Too large",
  415: "Not JSON", 422: "This cannot be planned", 429: "The server is busy", 500: "The server failed", 503: "The server is busy",
};
const WHAT = {
  0: "It may have been stopped, or the network is gone. What you see stays; ask again when it runs (planner-server).",
  401: "Paste a key of this server; it is kept until this tab is closed.",
  500: "That is a bug of the planner. Report it with the request's id.",
};

/** A problem as a note; `again` is offered where asking again can help. */
export function problemNote(problem, again) {
  const status = problem.status ?? -1, wait = problem.retryAfter ? ` Ask again in ${problem.retryAfter} s.` : "";
  const faults = (problem.errors ?? []).filter((each) => each.pointer || each.allowed?.length);
  const note = el(
    "div", { class: `note ${status === 429 || status === 503 ? "warn" : "bad"}`, role: "alert", "data-status": String(status) },
    el("strong", {}, TITLES[status] ?? "Something went wrong"),
    el("p", {}, `${WHAT[status] ?? sentence(problem.message)}${wait}`),
    faults.length ? el("ul", {}, faults.map(fault)) : null,
    problem.requestId ? el("p", { class: "small soft" }, "Request ", el("code", {}, problem.requestId)) : null,
  );
  if (again && [0, 429, 503, 500].includes(status)) note.append(el("div", {}, el("button", { type: "button", onclick: again }, "Ask again")));
  return note;
}

function fault(each) {
  const allowed = each.allowed?.length ? ` Nearest that works: ${each.allowed.join("; ")}.` : "";
  return el("li", {}, each.pointer ? el("code", {}, each.pointer) : null, each.pointer ? ": " : "", sentence(each.detail), allowed);
}

function sentence(text) {
  const trimmed = String(text ?? "").trim();
  return /[.!?]$/.test(trimmed) || trimmed === "" ? trimmed : `${trimmed}.`;
}
