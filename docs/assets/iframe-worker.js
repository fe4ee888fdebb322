// A page that is opened from a disk may not start a worker, in which the site's search runs: there an iframe does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = (this.frame = document.createElement("iframe"));
      frame.hidden = true;
      document.body.appendChild(frame);
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const told = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
      const inside = frame.contentDocument;
      inside.open();
      inside.write(
        "<!doctype html><body><script>" +
          "self.postMessage = (data) => parent.postMessage(data, '*');" +
          "self.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {" +
          "const s = document.createElement('script'); s.src = url; s.onload = done; document.body.appendChild(s); })), " +
          "Promise.resolve());<\/script></body>",
      );
      inside.close();
      const script = inside.createElement("script");
      script.src = String(url);
      script.onload = () => {
        this.ready = true;
        for (const data of this.waiting.splice(0)) this.postMessage(data);
      };
      inside.body.appendChild(script);
    }
    postMessage(data) {
      if (!this.ready) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
