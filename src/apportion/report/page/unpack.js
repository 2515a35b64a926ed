// The other half of packing.py: texts from gzip and base64, arrays from bytes.

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

async function unpack(id) {
  const holder = document.getElementById(id);
  const stream = new Blob([bytesOf(holder.textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
  holder.remove();
  return new Response(stream).text();
}

// {shape, values}: numbers in one row after another; NaN where there is none. Decoded once, when first wanted.
function decode(packed) {
  if (!packed) return null;
  if (!packed.values) {
    packed.values = numbersOf(packed);
    delete packed.data;
  }
  return packed;
}

function numbersOf(packed) {
  const bytes = bytesOf(packed.data);
  if (packed.kind === "uint8") return bytes;
  if (packed.kind === "uint16") return new Uint16Array(bytes.buffer);
  if (packed.kind === "float32") return new Float32Array(bytes.buffer);
  if (packed.kind === "byte") return Float32Array.from(bytes, (code) => (code === 255 ? NaN : code / 254));
  const width = packed.shape[1]; // "short": columns with their own scales
  return Float32Array.from(new Uint16Array(bytes.buffer), (code, i) =>
    code === 65535 ? NaN : packed.low[i % width] + code * packed.scale[i % width]);
}
