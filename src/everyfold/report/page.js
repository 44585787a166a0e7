"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const names = heads.map((head) => head.textContent);
  const read = (row, k) => {
    const text = row.cells[k].textContent;
    return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
  };
  const compare = (a, b) =>
    typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  heads.forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = names[k];
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      body.append(...rows.sort((a, b) => sign * compare(read(a, k), read(b, k))));
    });
  });
  const box = document.getElementById(table.dataset.filter);
  const input = box.querySelector("input"), count = box.querySelector("output");
  const passes = (row, word) => {
    const found = word.match(/^(.+?)(<=|>=|=|<|>)(.+)$/);
    const k = found ? names.indexOf(found[1]) : -1;
    if (k < 0) return row.textContent.toLowerCase().includes(word.toLowerCase());
    const number = Number(found[3]);
    const order = compare(read(row, k), Number.isNaN(number) ? found[3] : number);
    return { "<": order < 0, ">": order > 0, "=": order === 0, "<=": order <= 0, ">=": order >= 0 }[found[2]];
  };
  const filter = () => {
    const words = input.value.split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => passes(row, word));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} shown`;
  };
  input.addEventListener("input", filter);
  box.hidden = false;
  filter();
}
