// A chart of the plotting library in the page's theme: drawn again when theme or width change.

import { el, onTheme, themed } from "./base.js";

/** A chart; `option` is called for each drawing, so that colours follow the theme. `height` in pixels, beside a legend's
 * further lines, of which `names` says how many the width needs. */
export function chart(label, height, option, onClick, names = []) {
  const box = el("div", { class: "chart", role: "img", "aria-label": label, style: { height: `${height}px` } });
  let instance = null;
  const draw = () => {
    if (!box.isConnected || box.clientWidth === 0) return;
    box.style.height = `${height + extraLines(names, box.clientWidth)}px`;
    instance ??= start(box, onClick);
    instance.resize();
    instance.setOption({ ...shared(), ...option(box.clientWidth) }, { notMerge: true });
  };
  new ResizeObserver(draw).observe(box);
  const stop = onTheme(() => { if (box.isConnected) draw(); else { stop(); instance?.dispose(); } });
  box.redraw = draw;
  return box;
}

function start(box, onClick) {
  const instance = window.echarts.init(box, null, { renderer: "canvas" });
  if (onClick) instance.on("click", onClick);
  return instance;
}

function shared() {
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", color: themed("--text") },
    backgroundColor: "transparent",
  };
}

export function axisStyle(extra = {}) {
  return {
    axisLine: { lineStyle: { color: themed("--line-strong") } },
    axisTick: { lineStyle: { color: themed("--line-strong") } },
    axisLabel: { color: themed("--soft"), fontSize: 12, ...(extra.axisLabel ?? {}) },
    nameTextStyle: { color: themed("--soft"), fontSize: 12, ...(extra.nameTextStyle ?? {}) },
    splitLine: { lineStyle: { color: themed("--line") }, show: extra.grid ?? true },
  };
}

/** A tooltip that is drawn on the canvas: no markup, so nothing for a content-security policy to object to. */
export function tooltip(formatter, trigger = "item") {
  return {
    trigger, formatter, renderMode: "richText", confine: true,
    backgroundColor: themed("--card"), borderColor: themed("--line-strong"), borderWidth: 1,
    textStyle: { color: themed("--text"), fontSize: 13, lineHeight: 19 }, padding: [9, 12],
  };
}

const KEY = { mark: 21, gap: 14, letter: 6.5, line: 26 };

/** Pixels of a legend's lines after the first. */
function extraLines(names, width) {
  let lines = 1, used = 0;
  for (const name of names) {
    const wide = KEY.mark + name.length * KEY.letter + KEY.gap;
    if (used > 0 && used + wide > width) { lines += 1; used = 0; }
    used += wide;
  }
  return (lines - 1) * KEY.line;
}

/** A legend that takes as many lines as it needs, and the top of the grid below it: `{legend, top}`. */
export function keyed(names, width, top) {
  const legend = {
    data: names, textStyle: { color: themed("--soft"), fontSize: 12 }, itemWidth: 16, itemHeight: 12, itemGap: KEY.gap,
    inactiveColor: themed("--line-strong"), top: 0, left: 0, width,
  };
  return { legend, top: top + extraLines(names, width) };
}
