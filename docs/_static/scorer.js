// Search finds guides before names and models, which are in folders, and names before their fields.
var Scorer = {
  score: ([document, title, anchor, description, score]) =>
    score + (document.includes("/") ? 0 : 8) - (/attribute|method|property/.test(description) ? 20 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
