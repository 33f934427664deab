// Tables sort by a click on a heading, and again to turn the order round. Long tables have a filter,
// with a choice in columns of few kinds. Without this script they are as in the source.
const KINDS = ["family", "verdict"], LONG = 20;
const collator = new Intl.Collator("en", { numeric: true });
const cellText = (row, column) => row.cells[column]?.textContent.trim() ?? "";

// Numbers as written: 262,144, (4,096), 2.05k, 2.37M, 12 %.
function numberOf(text) {
  const found = /^\(?([−-]?[\d.,]+)([kMG]?)/.exec(text);
  return found && Number(found[1].replaceAll(",", "").replace("−", "-")) * 1000 ** " kMG".indexOf(found[2] || " ");
}

function compare(a, b) {
  const [x, y] = [numberOf(a), numberOf(b)];
  return x !== null && y !== null && x !== y ? x - y : collator.compare(a, b);
}

// Long names may break after an underscore, a dot or a comma.
function breakNames(cell) {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) {
    const parts = text.data.split(/(?<=[_.,])(?=\p{L})/u);
    text.replaceWith(...parts.flatMap((part) => [part, document.createElement("wbr")]).slice(0, -1));
  }
}

function sortRows(table, heading) {
  const column = heading.cellIndex, body = table.tBodies[0];
  const order = heading.ariaSort === "ascending" ? -1 : 1;
  for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
  heading.ariaSort = order === 1 ? "ascending" : "descending";
  body.append(...[...body.rows].sort((a, b) => order * compare(cellText(a, column), cellText(b, column))));
}

function addFilter(table, headings) {
  const rows = [...table.tBodies[0].rows], bar = document.createElement("form");
  const text = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter", ariaLabel: "Filter the rows" });
  const count = document.createElement("output"), choices = [];
  bar.className = "table-filter";
  bar.append(text);
  headings.forEach((name, column) => {
    if (!KINDS.includes(name)) return;
    const choice = Object.assign(document.createElement("select"), { ariaLabel: name });
    const kinds = [...new Set(rows.map((row) => cellText(row, column)))];
    choice.append(new Option(`any ${name}`, ""), ...kinds.map((kind) => new Option(kind)));
    choices.push([choice, column]);
    bar.append(choice);
  });
  bar.append(count);
  const update = () => {
    const words = text.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const content = row.textContent.toLowerCase();
      row.hidden = !(words.every((word) => content.includes(word))
        && choices.every(([choice, column]) => !choice.value || choice.value === cellText(row, column)));
    }
    count.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  bar.addEventListener("input", update);
  bar.addEventListener("submit", (event) => event.preventDefault());
  update();
  (table.closest(".table-wrapper") ?? table).before(bar);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const cells = [...(table.tHead?.rows[0]?.cells ?? [])];
    if (!cells.length) continue;
    const headings = cells.map((cell) => cell.textContent.trim());
    for (const heading of cells) {
      heading.tabIndex = 0;
      heading.addEventListener("click", () => sortRows(table, heading));
      heading.addEventListener("keydown", (event) => event.key === "Enter" && sortRows(table, heading));
    }
    if (table.tBodies[0].rows.length > LONG) addFilter(table, headings);
    if (!table.classList.contains("wide")) continue;
    table.classList.add("labelled");  // on a phone each row is a list of its cells
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.cells) {
        cell.dataset.label = headings[cell.cellIndex];
        breakNames(cell);
      }
    }
  }
});
