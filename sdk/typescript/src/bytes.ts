/** JSON, with a form for bytes. */

import { Buffer } from "node:buffer";

import type { Json } from "./errors.js";

const maxType = 255;
const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const mediaType = new RegExp(`^${token}/${token}( *; *${token}=(${token}|"([ !#-\\[\\]-~]|\\\\[ -~])*"))*$`);

/**
 * Opaque bytes with their media type, where everything else is JSON: as the result of a handler, or anywhere inside of
 * results, contexts and checkpoints. They are stored in base64.
 */
export class Bytes {
  constructor(readonly data: Uint8Array, readonly contentType = "application/octet-stream") {
    if (!(data instanceof Uint8Array)) throw new TypeError(`invalid data of type ${typeof data}: want a Uint8Array`);
    if (contentType.length > maxType || !mediaType.test(contentType)) {
      throw new TypeError(`invalid contentType ${JSON.stringify(contentType.slice(0, 64))}: want a media type of at most ${maxType} bytes, such as image/png`);
    }
  }

  /** The data as they are on the wire. */
  get base64(): string {
    return Buffer.from(this.data.buffer, this.data.byteOffset, this.data.byteLength).toString("base64");
  }

  toJSON(): Json {
    return { $bytes: this.base64, content_type: this.contentType };
  }
}

/** The value of a JSON text, with Bytes in it. A reviver is slow, and most texts have no bytes. */
export function parsed(text: string): Json {
  return /\$bytes|\\u/.test(text) ? JSON.parse(text, bytesOrSame) : JSON.parse(text);
}

function bytesOrSame(_key: string, value: Json): Json {
  if (typeof value !== "object" || value === null || !("$bytes" in value && "content_type" in value) || Object.keys(value).length !== 2) return value;
  const { $bytes: text, content_type: contentType } = value;
  if (typeof text !== "string" || typeof contentType !== "string") return value;
  try {
    const found = new Bytes(new Uint8Array(Buffer.from(text, "base64")), contentType); // a copy: small buffers share memory
    return found.base64 === text ? found : value;
  } catch {
    return value;
  }
}
