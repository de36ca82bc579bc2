"use strict";
// Every name of every column, by its text; in a column the first one is where it is defined.
const places = new Map();
const columns = Array.from(document.querySelectorAll("section"));
columns.forEach((column, number) => {
  column.querySelectorAll("a").forEach(a => {
    const name = a.textContent;
    if (!places.has(name)) places.set(name, []);
    places.get(name).push({ a, number });
  });
});
const told = document.getElementById("told");
const find = document.getElementById("find");
let current = "", active = 0;

function shown(number) { return !columns[number].hidden; }

// What a value became in a column that does not have it: its name there, "" for nothing, and the
// pass in which that last happened, if any.
function successor(name, number) {
  const path = [];
  for (let i = number; i !== -1; i = ancestry[i].From) path.unshift(i);
  let pass;
  for (const i of path) {
    const gone = ancestry[i].Gone;
    if (gone === null || !Object.hasOwn(gone, name)) continue;
    name = gone[name];
    pass = columns[i].getAttribute("aria-label");
  }
  return { name, pass };
}

// Brings into sight what a value became in a column that lacks it, and says so there.
function inherit(name, number) {
  const { name: to, pass } = successor(name, number);
  const column = columns[number];
  if (pass === undefined) {
    column.classList.add("lacks");
    return "";
  }
  const said = to === "" ? name + " is dropped in " + pass : name + " became part of " + to + " in " + pass;
  column.querySelector(".successor").textContent = said;
  const place = (places.get(to) ?? []).find(p => p.number === number);
  if (place !== undefined) {
    place.a.classList.add("mark");
    place.a.parentElement.classList.add("here");
    if (shown(number)) center(place.a);
  }
  return said;
}

// Shows a value in all columns, and brings its definition into sight in each.
function follow(name, number) {
  document.querySelectorAll(".mark, .here, .lacks").forEach(e => e.classList.remove("mark", "here", "lacks"));
  document.querySelectorAll(".successor").forEach(e => { e.textContent = ""; });
  current = name;
  history.replaceState(null, "", name === "" ? location.pathname : "#" + encodeURIComponent(name));
  if (name === "") { told.textContent = ""; return; }
  if (number !== undefined) active = number;
  const seen = new Set();
  for (const place of places.get(name)) {
    place.a.classList.add("mark");
    if (seen.has(place.number)) continue;
    seen.add(place.number);
    place.a.parentElement.classList.add("here");
    if (shown(place.number)) center(place.a);
  }
  let became = "";
  columns.forEach((column, i) => {
    if (seen.has(i)) return;
    const said = inherit(name, i);
    if (shown(i)) became = became || said;
  });
  const visible = Array.from(columns.keys()).filter(shown);
  told.textContent = name + " is in " + visible.filter(i => seen.has(i)).length + " of " + visible.length + " columns";
  if (became !== "") told.textContent += "; " + became;
}

function center(a) {
  const box = a.closest("pre");
  // Twice: what is out of sight gets its exact place only when it comes near.
  for (let i = 0; i !== 2; i++) {
    box.scrollTop += a.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  }
  box.scrollLeft = 0;
}

// The names that a column defines or mentions, in their order.
function names(number) { return Array.from(columns[number].querySelectorAll("a[id]"), a => a.textContent); }

function step(by) {
  const list = names(active);
  const at = list.indexOf(current);
  const to = at === -1 ? 0 : Math.min(Math.max(at + by, 0), list.length - 1);
  if (list.length !== 0) follow(list[to]);
}

function turn(by) {
  let to = active + by;
  while (columns[to] !== undefined) {
    if (shown(to)) {
      active = to;
      columns[to].scrollIntoView({ inline: "nearest", block: "nearest" });
      told.textContent = columns[to].getAttribute("aria-label") + ": " + current;
      return;
    }
    to += by;
  }
}

document.querySelector("main").addEventListener("click", event => {
  const a = event.target.closest("pre a");
  if (a !== null) follow(a.textContent, columns.indexOf(a.closest("section")));
});
document.querySelectorAll("button.group").forEach(button => button.addEventListener("click", () => {
  const on = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", on);
  columns.forEach(column => { if (column.dataset.group === button.dataset.group) column.hidden = !on; });
  if (current !== "") follow(current);
}));
const keys = { ArrowDown: () => step(1), ArrowUp: () => step(-1), ArrowRight: () => turn(1), ArrowLeft: () => turn(-1), Escape: () => follow(""), "/": () => find.focus() };
document.addEventListener("keydown", event => {
  if (event.target === find) {
    if (event.key === "Escape") find.blur();
    return;
  }
  if (event.ctrlKey || event.altKey || event.metaKey || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
find.addEventListener("input", () => {
  const name = ["", "%", "@"].map(sign => sign + find.value.trim()).find(n => places.has(n));
  if (name !== undefined) follow(name);
});
find.addEventListener("focus", () => {
  const list = document.getElementById("names");
  if (list.childElementCount !== 0) return;
  for (const name of places.keys()) {
    const option = document.createElement("option");
    option.value = name;
    list.append(option);
  }
});
const asked = decodeURIComponent(location.hash.slice(1));
if (places.has(asked)) follow(asked);
