"use strict";
// Sorting, the point picker and the requests of a point. Nothing is loaded: all data lies in the page.
const requests = JSON.parse(document.getElementById("requests").textContent);
const pick = document.getElementById("pick");
const shown = document.getElementById("shown");
const order = Array.from(pick.options, (option) => option.value);

/** What a cell is sorted by: its number where it has one, else its text; null where it is not known. */
function valueOf(cell) {
  if (cell.dataset.value !== undefined) return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  const text = cell.textContent.trim();
  return text === "—" || text === "" ? null : text;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** Sorts the table of a heading; a second click turns the order round. Unknown values stay at the end. */
function sortBy(heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  const body = heading.closest("table").tBodies[0];
  const keyed = Array.from(body.rows, (row) => [valueOf(row.cells[heading.cellIndex]), row]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return descending ? compare(b, a) : compare(a, b);
  });
  for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  body.append(...keyed.map(([, row]) => row));
}

/** Rows come as arrays in the order of the columns; null is not known. */
function fillRequests(index) {
  const body = shown.querySelector(".requests tbody");
  if (body === null) return;
  for (const values of requests[index]) {
    const row = body.insertRow();
    for (const value of values) {
      const cell = row.insertCell();
      cell.className = "right";
      cell.textContent = value === null ? "—" : value;
      if (typeof value === "number" || value === null) cell.dataset.value = value === null ? "" : value;
    }
  }
}

function show(index) {
  pick.value = index;
  shown.replaceChildren(document.getElementById(`template-${index}`).content.cloneNode(true));
  fillRequests(index);
  document.getElementById("previous").disabled = order[0] === index;
  document.getElementById("next").disabled = order[order.length - 1] === index;
}

/** `#point-3` shows that point. Returns whether the address named one. */
function follow() {
  const match = /^#point-(\d+)$/.exec(location.hash);
  if (match === null || !order.includes(match[1])) return false;
  show(match[1]);
  document.getElementById("detail").scrollIntoView();
  return true;
}

function step(by) {
  history.replaceState(null, "", `#point-${order[order.indexOf(pick.value) + by]}`);
  show(order[order.indexOf(pick.value) + by]);
}

document.addEventListener("click", (event) => {
  const heading = event.target.closest("th");
  if (heading !== null) sortBy(heading);
});
document.getElementById("previous").addEventListener("click", () => step(-1));
document.getElementById("next").addEventListener("click", () => step(1));
pick.addEventListener("change", () => {
  history.replaceState(null, "", `#point-${pick.value}`);
  show(pick.value);
});
window.addEventListener("hashchange", follow);
document.getElementById("contents").open = window.matchMedia("(min-width: 1200px)").matches;
if (!follow() && order.length > 0) show(order[0]);
