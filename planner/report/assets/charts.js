// A chart of the plotting library in the page's theme: drawn again when theme or width change.

import { el, onTheme, themed } from "./base.js";

/** A chart; `option` is called for each drawing, so that colours follow the theme. `height` in pixels. */
export function chart(label, height, option, onClick) {
  const box = el("div", { class: "chart", role: "img", "aria-label": label, style: { height: `${height}px` } });
  let instance = null;
  const draw = () => {
    if (!box.isConnected || box.clientWidth === 0) return;
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

export function legend(extra = {}) {
  return {
    textStyle: { color: themed("--soft"), fontSize: 12 }, itemWidth: 16, itemHeight: 12, itemGap: 14,
    inactiveColor: themed("--line-strong"), top: 0, left: 0, type: "scroll",
    pageTextStyle: { color: themed("--soft") }, pageIconColor: themed("--accent"), ...extra,
  };
}
