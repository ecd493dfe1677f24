// Coordinates and groups of a device in the mesh, from sizes and strides alone; without a drawing.

/** The coordinate of a rank on an axis. */
export function coordinate(rank, axis) {
  return Math.floor(rank / axis.stride) % axis.size;
}

/** The ranks that share all other coordinates. */
export function groupOf(rank, axis) {
  const first = rank - coordinate(rank, axis) * axis.stride;
  return Array.from({ length: axis.size }, (_, i) => first + i * axis.stride);
}

/** `8 to 15`, `3, 11, 19 … 59`: a group in few words. */
export function groupText(group) {
  if (group.length === 1) return String(group[0]);
  const stride = group[1] - group[0];
  if (stride === 1) return `${group[0]} to ${group.at(-1)}`;
  if (group.length <= 4) return group.join(", ");
  return `${group[0]}, ${group[1]}, ${group[2]} … ${group.at(-1)}`;
}

/** Where the cells of `devices` lie in blocks of one domain: `{cell, gap, columns, blockColumns, blockRows, height}`. */
export function cells(devices, domain, width) {
  const size = Math.min(domain, devices), blockColumns = blockWidth(size), blockRows = Math.ceil(size / blockColumns), blocks = Math.ceil(devices / size);
  for (let cell = 40; cell >= 3; cell -= 1) {
    const gap = cell >= 16 ? 10 : cell >= 7 ? 4 : 2;
    const wide = blockColumns * cell + gap, tall = blockRows * cell + gap;
    const columns = Math.max(Math.floor((width + gap) / wide), 1), height = Math.ceil(blocks / columns) * tall;
    if ((height <= 460 && columns * wide - gap <= width) || cell === 3) return { cell, gap, columns, blockColumns, blockRows, size, height, wide, tall };
  }
  return null;
}

function blockWidth(size) {
  if (size <= 4) return size;
  const wanted = Math.ceil(Math.sqrt(2 * size));
  for (let width = wanted; width < 2 * wanted; width += 1) if (size % width === 0) return width;
  return wanted;
}

/** Left upper corner of a rank's cell. */
export function corner(rank, at) {
  const block = Math.floor(rank / at.size), inside = rank % at.size;
  return [(block % at.columns) * at.wide + (inside % at.blockColumns) * at.cell, Math.floor(block / at.columns) * at.tall + Math.floor(inside / at.blockColumns) * at.cell];
}

/** The rank whose cell holds a point, or null. */
export function rankAt(x, y, at, devices) {
  const column = Math.floor(x / at.wide), row = Math.floor(y / at.tall), inX = Math.floor((x % at.wide) / at.cell), inY = Math.floor((y % at.tall) / at.cell);
  if (x < 0 || y < 0 || column >= at.columns || inX >= at.blockColumns || inY >= at.blockRows) return null;
  const inside = inY * at.blockColumns + inX, rank = (row * at.columns + column) * at.size + inside;
  return inside < at.size && rank < devices ? rank : null;
}
