// The filters of the map of attention. Without this script, all rows are shown.

"use strict";

(() => {
  const form = document.querySelector(".map-filters"), rows = [...document.querySelectorAll(".map tbody tr")];
  const said = form.querySelector("output");
  const names = rows.map((row) => row.dataset.name.toLowerCase());

  function filter() {
    const data = new FormData(form), has = data.getAll("has");
    const [name, kind, year] = ["name", "kind", "year"].map((key) => data.get(key).trim().toLowerCase());
    rows.forEach((row, i) => {
      const own = row.dataset.has.split(" ");
      row.hidden = !(names[i].includes(name) && (kind === "all" || kind === row.dataset.kind)
        && (year === "all" || year === row.dataset.year) && has.every((one) => own.includes(one)));
    });
    const left = rows.filter((row) => !row.hidden).length;
    said.textContent = left ? `${left} of ${rows.length} classes` : "No class has all of these.";
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", filter);
  form.querySelector("button").addEventListener("click", (event) => {
    event.preventDefault(); // a reset would bring the first choice of kind back
    form.reset();
    form.elements.kind.value = "all";
    filter();
  });
  addEventListener("pageshow", filter); // after "back", a browser keeps what was chosen
  filter();
})();
