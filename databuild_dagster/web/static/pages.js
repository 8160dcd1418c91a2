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

  // Times are in UTC, or in the zone of the reader, who chooses once for this browser.

  const ZONE = "databuild-zone";
  const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

  function zone() {
    try {
      return localStorage.getItem(ZONE) === "own" ? OWN_ZONE : "UTC";
    } catch {
      return "UTC"; // A browser may refuse to keep anything.
    }
  }

  function stamp(at) {
    // Sweden writes a date as ISO does.
    return `${new Date(at).toLocaleString("sv-SE", { timeZone: zone() })} ${zone()}`;
  }

  function stamps() {
    for (const element of document.querySelectorAll("time[datetime]")) {
      if (Number.isNaN(Date.parse(element.dateTime))) continue;
      if ("ago" in element.dataset) element.title = stamp(element.dateTime);
      else if (element.textContent !== stamp(element.dateTime)) element.textContent = stamp(element.dateTime);
    }
    const button = document.querySelector("[data-zone]");
    if (!button) return;
    button.hidden = OWN_ZONE === "UTC";
    button.textContent = `Times in ${zone()}`;
    button.title = `Show times in ${zone() === "UTC" ? OWN_ZONE : "UTC"}`;
  }

  function changeZone(event) {
    if (!event.target.closest("[data-zone]")) return;
    try {
      localStorage.setItem(ZONE, zone() === "UTC" ? "own" : "UTC");
    } catch {
      return;
    }
    stamps();
  }

  // The calendar has one tab stop, where the trouble is; arrow keys, Home, End, Page Up and Page Down move within it.

  const cellsOf = (grid) => [...grid.querySelectorAll("a.cell")];
  const cellAt = (event) => event.target.closest && event.target.closest("[data-grid] a.cell");

  function stopOf(cells) {
    const last = (selector) => cells.findLast((cell) => cell.matches(selector));
    return (
      cells.find((cell) => cell.getAttribute("aria-current")) ||
      last(".m-failed") ||
      last(".m-upstream-failed, .m-tainted") ||
      last(":not(.m-missing, .m-wanted)") ||
      cells[cells.length - 1]
    );
  }

  function tabStops() {
    for (const grid of document.querySelectorAll("[data-grid]")) {
      const cells = cellsOf(grid);
      const stop = cells.includes(document.activeElement) ? document.activeElement : stopOf(cells);
      for (const cell of cells) cell.tabIndex = cell === stop ? 0 : -1;
    }
  }

  function goTo(cell, from, event) {
    event.preventDefault();
    from.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
    if (event.shiftKey) pick(anchor || from, cell);
    else anchor = cell;
  }

  function jump(event, cell) {
    const cells = cellsOf(cell.closest("[data-grid]"));
    const row = cell.closest("tr");
    const isFirst = event.key === "Home" || event.key === "PageUp";
    let found = cells;
    if (event.key === "Home" || event.key === "End") {
      if (!event.ctrlKey) found = cells.filter((other) => row.contains(other));
    } else if (event.key === "PageUp" || event.key === "PageDown") {
      found = cells.filter((other) => other.closest("td").cellIndex === cell.closest("td").cellIndex);
    } else return false;
    goTo(isFirst ? found[0] : found[found.length - 1], cell, event);
    return true;
  }

  function move(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    const cell = cellAt(event);
    if (event.key === "Escape" && picked) unpick();
    if (!cell || jump(event, cell) || !step) return;
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
        goTo(found, cell, event);
        return;
      }
    }
  }

  // Several partitions of a calendar are picked by a drag, by a click with Shift, or by the arrow keys with Shift. The links of the bar
  // then lead to the confirmation of an action for all of them.

  const MAX_QUERY = 4000;
  const MAX_NAMED = 40;
  let picked = null;
  let anchor = null;
  let isDragging = false;

  const refOf = (cell) => new URL(cell.href).searchParams.get("ref");

  function pick(first, last) {
    const ends = [refOf(first), refOf(last)];
    if (!ends[0] || !ends[1] || !first.closest("[data-pick]")) return;
    picked = ends;
    showPicked();
  }

  function unpick() {
    picked = null;
    showPicked();
  }

  function showPicked() {
    const grid = document.querySelector("[data-pick]");
    const bar = document.querySelector("[data-picked]");
    if (!grid || !bar) return;
    const cells = cellsOf(grid);
    const places = (picked || []).map((ref) => cells.findIndex((cell) => refOf(cell) === ref));
    const [first, last] = [Math.min(...places), Math.max(...places)];
    const chosen = picked && first >= 0 ? cells.slice(first, last + 1) : [];
    for (const cell of cells) cell.classList.toggle("picked", chosen.includes(cell));
    bar.hidden = !chosen.length;
    if (!chosen.length) return;
    const refs = chosen.map(refOf);
    const names = refs.length > MAX_NAMED && !refs[0].includes("|") ? [`${refs[0]}..${refs[refs.length - 1].split("@").slice(1).join("@")}`] : refs;
    const query = names.map((name) => `refs=${encodeURIComponent(name)}`).join("&");
    bar.querySelector("[data-picked-said]").textContent = `${refs.length} picked: ${refs[0]} to ${refs[refs.length - 1]}`;
    const isTooLong = query.length > MAX_QUERY;
    if (isTooLong) bar.querySelector("[data-picked-said]").textContent += ": too many names for one action, pick fewer";
    for (const link of bar.querySelectorAll("a")) {
      const url = new URL(link.href);
      link.dataset.back ||= url.searchParams.get("back") || "";
      const given = `${query}&back=${encodeURIComponent(link.dataset.back)}`;
      link.href = `${url.pathname}?${given.length > MAX_QUERY || !link.dataset.back ? query : given}`;
      link.hidden = isTooLong;
    }
  }

  function press(event) {
    const cell = cellAt(event);
    if (!cell || event.pointerType !== "mouse" || event.button !== 0 || event.shiftKey) return;
    anchor = cell;
    isDragging = Boolean(cell.closest("[data-pick]"));
  }

  function drag(event) {
    const cell = isDragging && event.buttons & 1 ? cellAt(event) : null;
    if (cell && anchor && cell !== anchor && anchor.isConnected) pick(anchor, cell);
  }

  function click(event) {
    const cell = cellAt(event);
    if (event.target.closest("[data-unpick]")) unpick();
    if (!cell || !cell.closest("[data-pick]")) return;
    isDragging = false;
    if (event.shiftKey) {
      event.preventDefault();
      event.stopPropagation();
      // Without a cell that was chosen before, the cell is the first one.
      if (!anchor || !anchor.isConnected) anchor = cell.closest("[data-grid]").querySelector("[aria-current]") || cell;
      pick(anchor, cell);
    } else if (picked) unpick();
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

  // A wide calendar begins where its tab stop can be seen, with a whole cell beside the heads of the rows; a graph with its middle.

  // Where the heads of the rows stay, as on a phone, a calendar ends with a whole cell, too.

  function endWithCell() {
    for (const grid of document.querySelectorAll("[data-grid]")) {
      const [head, first, second] = grid.tBodies[0].rows.length ? grid.tBodies[0].rows[0].cells : [];
      const box = grid.closest(".scroll");
      if (!second || getComputedStyle(head).position !== "sticky") continue;
      const step = second.offsetLeft - first.offsetLeft;
      const rest = (box.parentElement.clientWidth - head.offsetWidth - 2 * (step - first.offsetWidth)) % step;
      box.style.marginRight = `${Math.max(rest, 0)}px`;
    }
  }

  function scrollToStop() {
    for (const stop of document.querySelectorAll("[data-grid] a.cell[tabindex='0']")) {
      const box = stop.closest(".scroll");
      const row = stop.closest("tr");
      const head = row.cells[0];
      const covered = getComputedStyle(head).position === "sticky" ? head.offsetLeft - box.scrollLeft + head.offsetWidth : 0;
      const left = stop.closest("td").offsetLeft - (box.clientWidth + covered) / 2;
      const first = [...row.cells].slice(1).find((place) => place.offsetLeft >= left + covered);
      box.scrollLeft = !first || first === row.cells[1] ? 0 : first.offsetLeft - covered;
    }
    for (const here of document.querySelectorAll(".graph .here rect")) {
      const box = here.closest(".scroll");
      box.scrollLeft += here.getBoundingClientRect().left - box.getBoundingClientRect().left - box.clientWidth / 2 + 125;
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
    showPicked();
    endWithCell();
    label();
    tick();
    stamps();
  }

  // The list of the bar ends with Escape, and with a click beside it.
  function endMore(event) {
    const more = document.querySelector("details.more[open]");
    if (!more || (event.type === "click" ? more.contains(event.target) : event.key !== "Escape")) return;
    if (more.contains(document.activeElement)) more.querySelector("summary").focus();
    more.open = false;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
  document.addEventListener("keydown", move);
  document.addEventListener("keydown", find);
  document.addEventListener("pointerdown", press);
  document.addEventListener("pointerover", drag);
  document.addEventListener("pointerup", () => (isDragging = false));
  // A link would be dragged as a link.
  document.addEventListener("dragstart", (event) => event.target.closest("[data-pick]") && event.preventDefault());
  document.addEventListener("click", click, true);
  document.addEventListener("click", changeZone);
  document.addEventListener("click", endMore);
  document.addEventListener("keydown", endMore);
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
