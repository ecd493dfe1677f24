// The theme before the first paint.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("planner-theme"); } catch { /* no storage */ }
  document.documentElement.dataset.theme = chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
})();
