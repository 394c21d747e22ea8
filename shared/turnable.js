// Surfaces that turn together: drag them, or use the arrow keys. No library, nothing from another host.
(function (id) {
  const root = document.getElementById(id);
  if (!root || root.dataset.ready) return;
  root.dataset.ready = "yes";
  const spec = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const views = [...root.querySelectorAll("canvas")];
  let yaw = 0.7, pitch = 0.55;

  function project(x, y, z, size) {
    const u = x * Math.cos(yaw) - y * Math.sin(yaw);
    const v = x * Math.sin(yaw) + y * Math.cos(yaw);
    const up = (z - 0.5) * 1.3;
    const scale = 0.31 * size;
    return {
      x: size / 2 + scale * u,
      y: 0.5 * size + scale * (v * Math.sin(pitch) - up * Math.cos(pitch)),
      depth: v * Math.cos(pitch) + up * Math.sin(pitch),
    };
  }

  function outline(context, points, colour) {
    context.strokeStyle = colour;
    context.beginPath();
    points.forEach((p, i) => (i ? context.lineTo(p.x, p.y) : context.moveTo(p.x, p.y)));
    context.stroke();
  }

  function draw(canvas, rows) {
    const ratio = window.devicePixelRatio || 1, size = canvas.clientWidth || 320;
    canvas.width = canvas.height = size * ratio;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size, size);
    const ink = getComputedStyle(root).color, last = rows.length - 1;
    const corner = [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]];
    context.lineWidth = 1;
    outline(context, corner.map(([x, y]) => project(x, y, 0, size)), ink);
    const at = (i, j) => project((2 * i) / last - 1, (2 * j) / last - 1, rows[i][j], size);
    const cells = [];
    for (let i = 0; i < last; i++)
      for (let j = 0; j < last; j++) {
        const points = [at(i, j), at(i + 1, j), at(i + 1, j + 1), at(i, j + 1)];
        const height = (rows[i][j] + rows[i + 1][j] + rows[i + 1][j + 1] + rows[i][j + 1]) / 4;
        cells.push({ points, height, depth: points.reduce((sum, p) => sum + p.depth, 0) });
      }
    cells.sort((a, b) => a.depth - b.depth);
    context.lineWidth = 0.5;
    for (const cell of cells) {
      const shade = Math.round(cell.height * (spec.colours.length - 1));
      context.fillStyle = spec.colours[Math.min(Math.max(shade, 0), spec.colours.length - 1)];
      outline(context, [...cell.points, cell.points[0]], "rgba(0, 0, 0, 0.35)");
      context.fill();
    }
    context.fillStyle = ink;
    context.font = "12px sans-serif";
    context.textAlign = "center";
    for (const [text, x, y] of [["t₁", 0, -1.2], ["t₂", 1.2, 0]]) {
      const place = project(x, y, 0, size);
      context.fillText(text, place.x, place.y);
    }
  }

  function redraw() {
    views.forEach((canvas, index) => draw(canvas, spec.surfaces[index]));
  }

  function turn(sideways, upwards) {
    yaw -= sideways;
    pitch = Math.min(Math.PI / 2, Math.max(0, pitch + upwards));
    redraw();
  }

  const keys = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
  for (const canvas of views) {
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) turn(event.movementX / 120, event.movementY / 120);
    });
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      turn(...keys[event.key]);
    });
  }
  new MutationObserver(redraw).observe(document.documentElement, { attributes: true });
  window.addEventListener("resize", redraw);
  redraw();
})
