// The page follows the log: when an event comes, it is fetched again from its own url and morphed. Without this file, every
// page is complete, and a reload shows what is new.
"use strict";

(() => {
  const REFRESH_MILLISECONDS = 1500;
  const TICK_MILLISECONDS = 10000;
  const root = document.documentElement.dataset.root;
  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let stream = null;
  // A page that reads data, or that no event changes, is fetched by a click alone.
  const isStill = "still" in document.documentElement.dataset;
  let lastSeq = Number(document.documentElement.dataset.seq);
  let waiting = null;
  let refreshedAt = Date.now();
  // Forms that a person has changed and not sent: an event must not undo the change.
  const changed = new WeakSet();

  // Following the log

  function follow() {
    // A confirmation stays as the person has read it.
    if (isStill || stream || document.hidden || document.querySelector("form[data-still]")) return;
    stream = new EventSource(`${root}/api/v1/stream?after=${lastSeq}`);
    stream.addEventListener("log", (event) => {
      lastSeq = Math.max(lastSeq, Number(event.lastEventId));
      show("live");
      refreshSoon();
    });
    stream.addEventListener("open", () => show("live"));
    stream.addEventListener("error", () => {
      show("away");
      // A refused stream does not come back by itself.
      if (stream && stream.readyState === EventSource.CLOSED) {
        stream = null;
        setTimeout(follow, 10 * REFRESH_MILLISECONDS);
      }
    });
  }

  // A browser has six connections to a host: a page that is not seen gives its own back.
  function rest() {
    if (stream) stream.close();
    stream = null;
  }

  function refreshSoon() {
    if (waiting) return;
    const pause = Math.max(0, refreshedAt + REFRESH_MILLISECONDS - Date.now());
    waiting = setTimeout(refresh, pause);
  }

  function refresh() {
    waiting = null;
    refreshedAt = Date.now();
    // An answer that costs a second stays as it was asked.
    if (document.querySelector("[data-asked]")) return;
    htmx.ajax("GET", location.href, { target: "#content", select: "#content", swap: "morph:outerHTML" });
  }

  function show(word) {
    const mark = document.getElementById("following");
    if (!mark) return;
    mark.dataset.state = word;
    mark.textContent = word === "live" ? "following" : "not connected";
  }

  // Times

  function span(seconds) {
    const [unit, n] = UNITS.find(([, n]) => seconds >= 2 * n) || UNITS[UNITS.length - 1];
    return `${Math.floor(Math.max(seconds, 0) / n)} ${unit}`;
  }

  function tick() {
    for (const element of document.querySelectorAll("time[data-ago]")) {
      const seconds = (Date.now() - Date.parse(element.dateTime)) / 1000;
      if (Number.isNaN(seconds)) continue;
      const text = seconds <= -1 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
      if (element.textContent !== text) element.textContent = text;
    }
  }

  // The calendar has one tab stop; arrow keys move within it.

  function tabStops() {
    for (const grid of document.querySelectorAll("[data-grid]")) {
      const cells = [...grid.querySelectorAll("a.cell")];
      const stop = cells.find((cell) => cell.getAttribute("aria-current")) || cells[cells.length - 1];
      for (const cell of cells) cell.tabIndex = cell === document.activeElement || cell === stop ? 0 : -1;
    }
  }

  function move(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    const cell = event.target.closest && event.target.closest("[data-grid] a.cell");
    if (!step || !cell) return;
    const place = cell.closest("td");
    let row = place.parentElement;
    let column = place.cellIndex;
    for (;;) {
      if (step[0]) row = step[0] < 0 ? row.previousElementSibling : row.nextElementSibling;
      column += step[1];
      const next = row && row.cells[column];
      if (!next || next.tagName !== "TD") break;
      const found = next.querySelector("a.cell");
      if (found) {
        event.preventDefault();
        cell.tabIndex = -1;
        found.tabIndex = 0;
        found.focus();
        return;
      }
    }
  }

  // Ctrl-K goes to the search, which is a plain form.

  function find(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    document.getElementById("find").select();
  }

  // The cell under the pointer or with the focus is named in words; a title waits, and does not open by the keyboard.

  function say(event) {
    const cell = event.target.closest && event.target.closest("[data-grid] a.cell");
    const said = cell && cell.closest(".panel").querySelector("[data-said]");
    if (said) said.textContent = cell.getAttribute("aria-label");
  }

  // The newest cells of a wide calendar are on the right.

  function scrollToStop() {
    for (const stop of document.querySelectorAll("[data-grid] a.cell[tabindex='0']")) {
      const box = stop.closest(".scroll");
      box.scrollLeft = stop.closest("td").offsetLeft - box.clientWidth / 2;
    }
  }

  // On a phone each row of a table is a card: its cells get the words of the head.

  function label() {
    for (const table of document.querySelectorAll("table.list:not(.rows, .compare, .stages)")) {
      const heads = [...(table.tHead ? table.tHead.rows[0].cells : [])];
      if (heads.length < 3) continue;
      table.classList.add("labeled");
      for (const row of table.tBodies[0].rows) {
        for (const cell of row.cells) {
          const head = heads[cell.cellIndex];
          cell.dataset.label = head && !head.querySelector(".sr") ? head.textContent : "";
          cell.toggleAttribute("data-none", cell.textContent.trim() === "–");
        }
      }
    }
  }

  // A short id is copied whole.

  async function copy(event) {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    button.dataset.done = "";
    setTimeout(() => delete button.dataset.done, REFRESH_MILLISECONDS);
  }

  // The slider says where it is before it is let go.

  function slide(event) {
    if (event.target.id !== "as-of") return;
    const said = document.getElementById("as-of-said");
    if (said) said.textContent = `event ${Number(event.target.value).toLocaleString("en")}`;
  }

  function change(event) {
    if (event.target.form) changed.add(event.target.form);
    slide(event);
  }

  function send(event) {
    changed.delete(event.detail.elt);
  }

  function ready() {
    tabStops();
    label();
    tick();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
  document.addEventListener("keydown", move);
  document.addEventListener("keydown", find);
  document.addEventListener("focusin", say);
  document.addEventListener("mouseover", say);
  // A page over http from another host has no clipboard; it has no buttons to copy then.
  if (navigator.clipboard) {
    document.documentElement.classList.add("copies");
    document.addEventListener("click", copy);
  }
  document.addEventListener("input", change);
  document.addEventListener("htmx:beforeRequest", send);
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => !changed.has(node);
  document.addEventListener("htmx:afterSettle", ready);
  addEventListener("pagehide", rest);
  addEventListener("pageshow", follow);
  setInterval(tick, TICK_MILLISECONDS);
  document.documentElement.classList.add("scripted");
  ready();
  scrollToStop();
})();
