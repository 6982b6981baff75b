import { displayParts } from '../model/display';

/** Untrusted text, with invisible characters escaped and its text direction isolated. */
export function Name({ text }: { text: string }) {
  return (
    <bdi>
      {displayParts(text).map((part, index) =>
        part.escaped ? (
          <span key={index} class="escaped">
            {part.text}
          </span>
        ) : (
          part.text
        ),
      )}
    </bdi>
  );
}
