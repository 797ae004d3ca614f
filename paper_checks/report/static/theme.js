// Runs before anything is drawn: the theme that was chosen last time, and the sign that scripts run.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const chosen = localStorage.getItem("depthlaw-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // Storage may be shut; then the system's theme it is.
  }
})();
