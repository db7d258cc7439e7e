"use strict";
// Packed data of the page: base64 of deflate; numbers as four planes of bytes.

const Packed = (() => {
  async function bytes(text) {
    const binary = atob(text);
    const data = new Uint8Array(binary.length);
    for (let i = 0; i < data.length; i++) data[i] = binary.charCodeAt(i);
    const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  async function string(text) {
    return new TextDecoder().decode(await bytes(text));
  }

  // A column of `count` numbers from byte `at` on, as signed 32-bit numbers.
  function column(data, at, count) {
    const made = new Int32Array(count);
    const two = at + count, three = two + count, four = three + count;
    for (let i = 0; i < count; i++) {
      made[i] = data[at + i] | data[two + i] << 8 | data[three + i] << 16 | data[four + i] << 24;
    }
    return made;
  }

  return { bytes, string, column };
})();
