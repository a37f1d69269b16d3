import * as Plot from "@observablehq/plot";
document.getElementById("app")!.append(Plot.plot({ marks: [Plot.rectY([1,2,3], {x1: 0, x2: 1, y: 4}), Plot.frame(), Plot.ruleX([1]), Plot.text([1])] }));
