// Before anything is drawn: the theme chosen last time, or that of the system.
(() => {
  let kept = null;
  try { kept = localStorage.getItem("deeplinear-theme"); } catch { /* storage may be off */ }
  const dark = kept ? kept === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
