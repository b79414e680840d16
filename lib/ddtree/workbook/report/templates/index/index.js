"use strict";
// Sorts the rows by a column, turning round at the second click, and hides those without the words of the filter.
(() => {
  const tools = document.querySelector(".tools");
  const body = document.querySelector("table.runs tbody");
  const headings = [...document.querySelectorAll("table.runs th")];
  const rows = [...body.rows];

  // Numbers before texts, and a run without the value after both, in either direction.
  function compare(a, b, sign) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    if (Number.isNaN(x) !== Number.isNaN(y)) return sign * (Number.isNaN(x) - Number.isNaN(y));
    return sign * (Number.isNaN(x) ? a.localeCompare(b, "en", { numeric: true }) : x - y);
  }

  function sort(column, descending) {
    const key = (row) => row.cells[column].dataset.sort;
    const sign = descending ? -1 : 1;
    rows.sort((one, other) => compare(key(one), key(other), sign)).forEach((row) => body.append(row));
    headings.forEach((heading) => heading.removeAttribute("aria-sort"));
    headings[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    tools.querySelector("select").value = column;
  }

  function filter() {
    const words = tools.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    });
    const shown = rows.filter((row) => !row.hidden).length;
    tools.querySelector("output").textContent = words.length ? `${shown} of ${rows.length}` : "";
  }

  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const before = heading.getAttribute("aria-sort");
    sort(column, before ? before === "ascending" : heading.classList.contains("number"));
  }));
  tools.querySelector("select").addEventListener("change", (event) => {
    const column = Number(event.target.value);
    sort(column, headings[column].classList.contains("number"));
  });
  tools.addEventListener("input", filter);
  tools.addEventListener("submit", (event) => event.preventDefault());
  headings[headings.findIndex((heading) => heading.textContent === "when")].setAttribute("aria-sort", "descending");
  tools.querySelector("select").value = headings.findIndex((heading) => heading.textContent === "when");
  tools.hidden = false;
})();
