import { defineConfig } from 'vite';

declare const process: { env: Record<string, string | undefined> };

// For development only: forwards requests to a running agent, with the token from the environment.
// The page never contains the token.
const agent = process.env['LONGHAUL_AGENT'] ?? 'http://127.0.0.1:7512';
const token = process.env['LONGHAUL_TOKEN'];

export default defineConfig({
  build: {
    target: 'es2022',
    modulePreload: { polyfill: false },
    // The content security policy allows data: URLs only for images, and few files are wanted.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rollupOptions: { output: { entryFileNames: 'assets/[name]-[hash].js', chunkFileNames: 'assets/[name]-[hash].js' } },
  },
  server: {
    host: '127.0.0.1',
    proxy: {
      '/api': {
        target: agent,
        changeOrigin: true,
        // The agent accepts only requests of its own origin.
        headers: { origin: agent, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) },
      },
    },
  },
});
