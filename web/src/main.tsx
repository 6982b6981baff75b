import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import './style/base.css';
import './style/page.css';
import './style/files.css';
import './style/jobs.css';
import { followAddress, takeTicket } from './state/route';
import { showWhatWasCopied } from './state/refresh';
import { signIn } from './state/session';
import { App } from './ui/app';

// Taken first, because the ticket must not stay in the address.
const ticket = takeTicket();
followAddress();
showWhatWasCopied();
void signIn(ticket);

// A file dropped from the desktop must not replace the page.
window.addEventListener('dragover', (event) => {
  if (event.dataTransfer?.types.includes('Files') !== true) return;
  event.preventDefault();
  event.dataTransfer.dropEffect = 'none';
});

const root = document.getElementById('app');
if (root) render(<App />, root);
