// Everything here is an extra: without it every page is complete. Works from the file system.
"use strict";

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

function say(text) {
  const said = $("#said");
  if (said) said.textContent = text;
}

// ---------------------------------------------------------------- theme

function startTheme() {
  const root = document.documentElement;
  const button = $("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("depthlaw-theme", root.dataset.theme);
    } catch {
      // Chosen for this page only, where storage is shut.
    }
    show();
  });
  system.addEventListener("change", show);
  show();
  button.hidden = false;
}

// ---------------------------------------------------------------- copying commands

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr";
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

function startCopying() {
  for (const box of $$(".command")) {
    const button = document.createElement("button");
    const text = $("code", box).textContent;
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${text}`);
    button.addEventListener("click", async () => {
      const isDone = await copy(text);
      button.textContent = isDone ? "Copied" : "Select it";
      say(isDone ? "The command is copied." : "The command could not be copied.");
      button.focus();
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    box.append(button);
  }
}

// ---------------------------------------------------------------- folding

function startFolding() {
  for (const tools of $$(".tools")) tools.hidden = false;
  for (const button of $$("[data-unfold]")) {
    button.addEventListener("click", () => {
      const isOpen = button.dataset.unfold === "true";
      for (const fold of $$("details.fold")) fold.open = isOpen;
      say(isOpen ? "Everything is open." : "Everything is closed.");
    });
  }
  // A link to a claim opens it; the style sheet does so where no script runs.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folds = target ? [...$$(":scope > details.body", target), target.closest("details.body")] : [];
    const closed = folds.filter((fold) => fold && !fold.open);
    for (const fold of closed) fold.open = true;
    if (closed.length) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = $$("details:not([open])");
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
    opened = [];
  });
}

// What is wider than its box can be scrolled by keyboard too; what is folded has no width yet.
const BOXES =
  ".statement, .printed blockquote, .finding, .says, .notes dd, .numbers dd, .evidence p, .steps, .entry p, .found li, " +
  ".drawn figcaption, .canvas, .form";

function markScrolling(from) {
  for (const box of $$(BOXES, from)) {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

function startScrolling() {
  markScrolling(document);
  addEventListener("resize", () => markScrolling(document));
  document.addEventListener("toggle", (event) => markScrolling(event.target), true);
  const current = $(".top nav [aria-current]");
  if (current) {
    const nav = current.closest("nav");
    const [outer, inner] = [nav, current].map((one) => one.getBoundingClientRect());
    nav.scrollLeft = inner.left - outer.left - (outer.width - inner.width) / 2;
  }
}

// ---------------------------------------------------------------- the filter of claims.html

function startFilter() {
  const form = $("#filter");
  if (!form) return;
  const search = $("#q");
  const entries = $$(".entry").map((item) => ({
    item,
    text: item.dataset.text,
    values: { kind: [item.dataset.kind], verdict: [item.dataset.verdict], source: [item.dataset.source], route: item.dataset.route.split(" ") },
  }));
  const groups = ["kind", "verdict", "source", "route"];
  const boxes = (group) => $$(`input[name="${group}"]`, form);
  const chosen = (group) => boxes(group).filter((box) => box.checked).map((box) => box.value);

  // The state of the form stands in the address: #verdict=REFUTED,MISPRINT&source=su&q=gelu
  function toHash() {
    const state = new URLSearchParams();
    for (const group of groups) if (chosen(group).length) state.set(group, chosen(group).join(","));
    if (search.value.trim()) state.set("q", search.value.trim());
    return state.toString().replaceAll("%2C", ",");
  }
  function fromHash() {
    const text = location.hash.slice(1);
    const state = new URLSearchParams(text.includes("=") ? text : "");
    for (const group of groups) {
      const wanted = (state.get(group) ?? "").split(",");
      for (const box of boxes(group)) box.checked = wanted.includes(box.value);
    }
    search.value = state.get("q") ?? "";
    show();
    // An id: the browser goes there, where the filter did not hide it.
    if (text && !text.includes("=")) document.getElementById(text)?.scrollIntoView();
  }

  function matches(entry, state, except) {
    if (!state.words.every((word) => entry.text.includes(word))) return false;
    return groups.every(
      (group) =>
        group === except || !state[group].length || entry.values[group].some((value) => state[group].includes(value)),
    );
  }
  function show() {
    const state = { words: search.value.normalize("NFKC").toLowerCase().split(/\s+/).filter(Boolean) };
    for (const group of groups) state[group] = chosen(group);
    let shown = 0;
    for (const entry of entries) {
      entry.item.hidden = !matches(entry, state, null);
      shown += entry.item.hidden ? 0 : 1;
    }
    for (const section of $$(".kind")) section.hidden = !$(".entry:not([hidden])", section);
    // Beside each option: how many there would be with it, the other groups as they are.
    for (const group of groups) {
      const left = entries.filter((entry) => matches(entry, state, group));
      for (const box of boxes(group)) {
        const number = left.filter((entry) => entry.values[group].includes(box.value)).length;
        $(".count", box.parentElement).textContent = number;
      }
    }
    $("#count").textContent = `${shown} of ${entries.length} claims`;
    $("#none").hidden = shown > 0;
    $("#reset").hidden = !toHash();
  }
  function changed() {
    show();
    const hash = toHash();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }
  function reset() {
    search.value = "";
    for (const group of groups) for (const box of boxes(group)) box.checked = false;
    changed();
    search.focus();
  }

  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  $("#reset").addEventListener("click", reset);
  $("#reset-none").addEventListener("click", reset);
  addEventListener("hashchange", fromHash);
  form.hidden = false;
  // Where list and filter stand one below the other, the filter begins folded.
  $("#facets").open = matchMedia("(min-width: 60rem)").matches;
  fromHash();
}

startTheme();
startCopying();
startFolding();
startFilter();
startScrolling();
