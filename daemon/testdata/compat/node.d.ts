// Types of Node, which are not installed where this is compiled.
declare module 'node:*';
declare const process: any;
